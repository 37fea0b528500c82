// Chunk after chunk, copied out into arrays of the user's own.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <optional>
#include <system_error>

#include "array/mover.h"
#include "base/signals.h"
#include "evenkeel/error.h"
#include "src/bind.h"
#include "src/given_up.h"
#include "src/reader.h"
#include "src/recycled.h"
#include "src/without_gil.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;
using namespace std::chrono_literals;

// A loop holds the chunk it has while it takes the next.
constexpr std::uint64_t kHeldByLoop = 2;
// Where whole chunks cannot be read ahead, parts of them are.
constexpr std::uint64_t kParts = 3;
// As much as this is waited for without a look at signals.
constexpr std::uint64_t kSmallBytes = 1_MiB, kSmallRows = 2048;
constexpr std::uint64_t kCopyPiece = 64_MiB;

// What a thread that waits for the next part needs.
struct Stream {
  Chunks parts;
  Reservation held_by_loop;
  Chunks::Iterator at = {};
  bool begun = false;

  void advance() {
    if (begun) {
      ++at;
    } else {
      at = parts.begin();
    }
    begun = true;
  }
};

using RowNumbersOut = nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

struct Sizes {
  std::uint64_t rows, chunk_rows, part_rows, row_bytes;
};

// Copies chunks out of parts, which come as they were read ahead.
class ChunkReader {
 public:
  ChunkReader(std::unique_ptr<Stream> stream, const Sizes& sizes)
      : stream_(std::move(stream)),
        memory_(std::make_shared<Recycled>(sizes.chunk_rows * sizes.row_bytes, kHeldByLoop)),
        sizes_(sizes),
        left_(sizes.rows) {}

  // Rows of the next chunk; 0 after the last.
  std::uint64_t next() const { return std::min(left_, sizes_.chunk_rows); }

  // For a whole chunk, as the last need not be.
  Recycled::Array memory() { return memory_->array(); }

  // The next chunk, and its rows' numbers if there is room for them.
  void read(const Bytes& out, const std::optional<RowNumbersOut>& numbers) {
    const std::uint64_t rows = next();
    if (!stream_) throw Error(ErrorKind::kClosed, "chunks", "used after close");
    if (out.size() != rows * sizes_.row_bytes || (numbers && numbers->size() != rows)) {
      throw Error(ErrorKind::kInvalid, "chunks", "`out` is not of the size of the chunk");
    }
    for (std::uint64_t done = 0; done < rows;) {
      if (taken_ == in_part_) advance();
      const std::uint64_t now = std::min(rows - done, in_part_ - taken_);
      if (numbers) number(numbers->data() + done, now);
      copy(span_of(out).subspan(done * sizes_.row_bytes, now * sizes_.row_bytes));
      taken_ += now;
      done += now;
    }
    left_ -= rows;
    if (left_ == 0) close();
  }

  void close() {
    stream_.reset();
    memory_->close();
    left_ = 0;
  }

 private:
  void number(std::int64_t* out, std::uint64_t rows) const {
    for (std::uint64_t i = 0; i < rows; ++i) {
      out[i] = static_cast<std::int64_t>(stream_->at->index(taken_ + i));
    }
  }

  void copy(std::span<std::byte> to) const {
    const std::byte* from = stream_->at->bytes().data() + taken_ * sizes_.row_bytes;
    const WithoutGil without;
    in_pieces(without, to.size(), kCopyPiece, [&](std::uint64_t done, std::uint64_t now) {
      std::memcpy(to.data() + done, from + done, now);
    });
  }

  void advance() {
    const bool small =
        sizes_.part_rows * sizes_.row_bytes <= kSmallBytes && sizes_.part_rows <= kSmallRows;
    if (small || !advance_on_a_thread()) {
      const WithoutGil without;
      stream_->advance();
    }
    taken_ = 0;
    in_part_ = stream_->at->size();
  }

  // The wait itself cannot be broken off; it can be left to a thread and forgotten. False where
  // there are no threads to be had.
  bool advance_on_a_thread() {
    std::future<void> waiting;
    try {
      const SignalsBlocked blocked;
      waiting = std::async(std::launch::async, [stream = stream_]() mutable {
        const std::shared_ptr<Stream> mine = std::move(stream);
        mine->advance();
      });
    } catch (const std::system_error&) {
      return false;
    }
    try {
      const WithoutGil without;
      while (waiting.wait_for(50ms) != std::future_status::ready) without.check_signals();
    } catch (...) {
      close();
      GivenUp::here().add(std::move(waiting));
      throw;
    }
    waiting.get();
    return true;
  }

  std::shared_ptr<Stream> stream_;
  std::shared_ptr<Recycled> memory_;
  const Sizes sizes_;
  std::uint64_t left_;                     // rows
  std::uint64_t in_part_ = 0, taken_ = 0;  // rows of the part at hand
};

// Empty where it does not fit. With `ahead`, also where nothing could be read ahead.
std::unique_ptr<Stream> stream_of(Reader& reader, const Sizes& sizes, const Order& order,
                                  bool ahead) {
  try {
    const std::uint64_t held = kHeldByLoop * sizes.chunk_rows * sizes.row_bytes;
    Reservation room = reader.room_for(held, "chunks that the loop holds");
    auto stream = std::make_unique<Stream>(
        Stream{reader.array()->chunks(sizes.part_rows, order), std::move(room)});
    if (!ahead || stream->parts.buffers() != 1) return stream;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBudget) throw;
  }
  return nullptr;
}

[[noreturn]] void refuse(const Array& array, const Sizes& sizes) {
  const std::uint64_t row = sizes.row_bytes, left = array.budget().left();
  const std::uint64_t plans = Mover::memory(array.budget().limit(), 1) + 32_KiB;
  // Two chunks and a third; numbers and plans of rows that do not follow one another.
  const std::uint64_t three_rows = (kHeldByLoop * kParts + 1) * row + 64;
  const std::uint64_t fitting = left > plans ? (left - plans) * kParts / three_rows : 0;
  throw Error(ErrorKind::kBudget, "chunks",
              "chunks of " + with_commas(sizes.chunk_rows) + " rows of " + with_commas(row) +
                  " bytes do not fit: the loop holds two while it goes from one to the next, the "
                  "reader at least a third of one, and " +
                  with_commas(left) + " bytes are left of a budget of " + array.budget().describe())
      .in(array.paths().front())
      .hint(fitting > 0 ? "ask for at most " + with_commas(fitting) + " rows at a time"
                        : "raise the budget: one row and its read buffers do not fit");
}

std::unique_ptr<ChunkReader> make(Reader& reader, std::uint64_t rows, bool shuffle,
                                  std::uint64_t seed, std::uint64_t epoch, std::uint64_t rank,
                                  std::uint64_t world) {
  if (rows == 0) throw Error(ErrorKind::kInvalid, "chunks", "a chunk of 0 rows");
  GivenUp::here().wait();
  const Order order =
      (shuffle ? shuffled(seed, epoch) : sequential().at_epoch(epoch)).for_rank(rank, world);
  const std::uint64_t all = Sequence(order, reader.array()->rows()).size();
  Sizes sizes{all, std::min(rows, std::max<std::uint64_t>(all, 1)), 0, reader.array()->row_bytes()};
  sizes.part_rows = sizes.chunk_rows;
  auto stream = stream_of(reader, sizes, order, true);
  if (!stream) {
    sizes.part_rows = (sizes.chunk_rows + kParts - 1) / kParts;
    stream = stream_of(reader, sizes, order, false);
  }
  if (!stream) refuse(*reader.array(), sizes);
  return std::make_unique<ChunkReader>(std::move(stream), sizes);
}

}  // namespace

void bind_chunks(nb::module_& module) {
  nb::class_<ChunkReader>(module, "ChunkReader", "Chunk after chunk, read ahead.")
      .def("next", &ChunkReader::next, "Rows of the next chunk; 0 after the last.")
      .def("memory", &ChunkReader::memory, "Room for a whole chunk, which comes back of itself.")
      .def("read", &ChunkReader::read, "out"_a, "numbers"_a = nb::none())
      .def("close", &ChunkReader::close);
  module.def("chunks", &make, "reader"_a, "rows"_a, "shuffle"_a, "seed"_a, "epoch"_a, "rank"_a,
             "world"_a);
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    GivenUp::here().wait();
    WithoutGil::interpreter_ends();
  }));
}

}  // namespace evenkeel::python
