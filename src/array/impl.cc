#include "array/impl.h"

#include <algorithm>
#include <cstring>

#include "array/row_extents.h"
#include "base/fd.h"
#include "engine/cache.h"
#include "engine/files.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kSmallestBudget = 1_MiB;
// Descriptors, rings, the reading thread's stack and heap: small things not counted one by one.
constexpr std::uint64_t kBookkeeping = 256_KiB;

std::uint64_t starts_share(const Budget& budget) {
  return std::clamp<std::uint64_t>(budget.limit() / 64 / 16, 1024, 1 << 20);
}

Reservation reserve_bookkeeping(const Budget& budget, std::uint64_t most_starts) {
  if (budget.limit() < kSmallestBudget) {
    throw Error(ErrorKind::kBudget, "open",
                "a budget of " + with_commas(budget.limit()) + " bytes is below the smallest, " +
                    with_commas(kSmallestBudget) + " bytes (1 MiB)")
        .hint("bookkeeping, plans and read buffers take about half of that; give 1MiB or more");
  }
  return budget.reserve(kBookkeeping + RowFeed::memory(budget.limit(), most_starts),
                        "plans and bookkeeping");
}

}  // namespace

// Serves one call at a time: the engine would make them wait for one another anyway.
struct Array::Impl::Gatherer final : JobSource {
  explicit Gatherer(const Impl& array_impl) : impl(array_impl) {}

  void gather(std::span<const std::uint64_t> starts, std::uint64_t count, std::byte* out) {
    std::lock_guard lock(mutex);
    // The engine may have changed since the last call; plans are cheap to keep apart.
    const std::shared_ptr<Engine> engine = impl.engine();
    if (!mover || engine != planned_for) {
      planned_for = engine;
      mover = std::make_unique<RowFeed>(impl.layout, *engine, *this, impl.merge_gap,
                                        impl.budget.limit());
    }
    rest = starts;
    next_out = out;
    rows_each = count;
    try {
      while (!rest.empty() || busy) engine->run(*mover);
    } catch (...) {
      mover->reset();
      busy = false;
      throw;
    }
  }

  Job* next_job() override {
    if (busy || rest.empty()) return nullptr;
    const std::size_t now = std::min<std::size_t>(rest.size(), impl.most_starts_);
    job = Job{};
    job.starts = rest.first(now);
    job.count = rows_each;
    job.out = next_out;
    rest = rest.subspan(now);
    next_out += now * rows_each * impl.layout.row_bytes;
    busy = true;
    return &job;
  }
  void job_done(Job&) override { busy = false; }

  const Impl& impl;
  std::mutex mutex;
  std::shared_ptr<Engine> planned_for;
  std::unique_ptr<RowFeed> mover;
  Job job;
  bool busy = false;
  std::span<const std::uint64_t> rest;
  std::byte* next_out = nullptr;
  std::uint64_t rows_each = 0;
};

Array::Impl::Impl(Layout array_layout, const ArrayOptions& options)
    : layout(std::move(array_layout)),
      budget(options.budget),
      merge_gap(options.merge_gap),
      bookkeeping(reserve_bookkeeping(budget, starts_share(budget))),
      most_starts_(starts_share(budget)),
      engine_(make_engine(options.engine, layout, budget, budget.limit() / 8)),
      gatherer_(std::make_unique<PerProcess<Gatherer>>(
          [this] { return std::make_unique<Gatherer>(*this); })) {
  note_files_to_drop();
}

Array::Impl::~Impl() = default;

std::shared_ptr<Engine> Array::Impl::engine() const {
  std::lock_guard lock(mutex_.get());
  if (!engine_) engine_ = make_engine(EngineKind::kAuto, layout, budget, 0);  // see stop_mapping
  return engine_;
}

void Array::Impl::note_files_to_drop() {
  const EngineReport report = engine_->report();
  if (report.asked != EngineKind::kAuto || report.chosen != EngineKind::kMap) return;
  for (std::uint32_t file = 0; file < layout.segments.size(); ++file) {
    const Fd fd = open_readable(layout.segments[file].path);
    if (!is_cached(fd.get(), 0, layout.segments[file].identity.size)) {
      files_to_drop_.push_back(file);
    }
  }
}

void Array::Impl::drop_files() const {
  for (const std::uint32_t file : files_to_drop_) {
    const Fd fd(sys::open(layout.segments[file].path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd) sys::fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

bool Array::Impl::stop_mapping(std::uint64_t bytes) {
  std::lock_guard lock(mutex_.get());
  const EngineReport report = engine_ ? engine_->report() : EngineReport{};
  if (report.asked != EngineKind::kAuto || report.chosen != EngineKind::kMap) return false;
  // The mapping is given back before its successor is made: together they would not fit. Where a
  // range of chunks still holds it, it stays.
  const std::weak_ptr<Engine> before = engine_;
  engine_.reset();
  drop_files();
  try {
    engine_ = make_engine(EngineKind::kAuto, layout, budget, bytes);
  } catch (...) {
    engine_ = before.lock();
    throw;
  }
  return true;
}

void Array::Impl::check_rows(const char* operation, std::uint64_t first,
                             std::uint64_t count) const {
  if (first <= layout.rows && count <= layout.rows - first) return;
  throw Error(
      ErrorKind::kIndex, operation,
      (count == 1 ? "row " + with_commas(first) + " is"
                  : with_commas(count) + " rows from row " + with_commas(first) + " on are") +
          " outside the array, which has " + with_commas(layout.rows) + " rows")
      .in(layout.paths.empty() ? "" : layout.paths.front());
}

void Array::Impl::crops(std::span<const std::uint64_t> starts, std::uint64_t count,
                        std::byte* out) {
  if (starts.empty() || count == 0) return;
  if (const auto held = engine(); held->mapped(0)) {
    copy_mapped(*held, layout, starts, count, out);
    return;
  }
  gatherer_->get().gather(starts, count, out);
}

void copy_mapped(Engine& engine, const Layout& layout, std::span<const std::uint64_t> starts,
                 std::uint64_t count, std::byte* out) {
  const Scatter scatter = scatter_of(layout);
  std::vector<const std::byte*> bases(layout.segments.size(), nullptr);
  std::byte* crop_out = out;
  for (const std::uint64_t start : starts) {
    for (std::uint64_t column = 0; column < columns_of(layout); ++column) {
      for (std::uint64_t row = 0, taken; row < count; row += taken) {
        const Piece piece = piece_of(layout, column, start + row, count - row,
                                     crop_out + row * layout.row_bytes, taken);
        const std::byte*& base = bases[piece.file];
        if (!base) base = engine.mapped(piece.file);
        copy_piece(piece, scatter, piece.offset, piece.end(), base + piece.offset);
      }
    }
    crop_out += count * layout.row_bytes;
  }
  if (layout.swapped) {
    swap_bytes(out, starts.size() * count * layout.row_bytes, layout.dtype.swap_unit());
  }
}

}  // namespace evenkeel
