#include "evenkeel/tokens.h"

#include <algorithm>
#include <thread>

#include "base/checked.h"
#include "format/token_paths.h"
#include "loader/data.h"
#include "remote/opening.h"
#include "tokens/impl.h"
#include "tokens/widen.h"

namespace evenkeel {
namespace {

// Includes the start of a slice: different slices of the same length must have different
// fingerprints.
std::string fingerprint_of_tokens(const TokenLayout& tokens) {
  return fingerprint_of(tokens.layout, "tokens") +
         (tokens.first_token > 0 ? " first=" + std::to_string(tokens.first_token) : "");
}

std::uint64_t staging_size(const Budget& budget) {
  return std::clamp<std::uint64_t>(round_down(budget.limit() / 32, 4 << 10), 32 << 10, 2 << 20);
}

void check_crop(const Layout& layout, std::uint64_t start, std::uint64_t block_size) {
  if (layout.rows > block_size && start < layout.rows - block_size) return;
  throw Error(ErrorKind::kIndex, "xy",
              "a crop of " + with_commas(block_size) + " tokens from token " + with_commas(start) +
                  ", with the token after it, exceeds the stream of " + with_commas(layout.rows) +
                  " tokens")
      .in(layout.paths.front())
      .hint(layout.rows > block_size
                ? "starts go from 0 to " + with_commas(layout.rows - block_size - 1)
                : "take a smaller block_size");
}

}  // namespace

Error token_too_large(const Layout& layout, DType out) {
  return Error(ErrorKind::kInvalid, "xy",
               "a token stored as " + layout.dtype.name() + " does not fit " + out.name())
      .in(layout.paths.front())
      .hint("use int64 or the stored dtype");
}

Tokens::Impl::Impl(TokenLayout layout, const TokensOptions& options)
    : format(layout.detail),
      first_token(layout.first_token),
      engine(engine_for(options.engine, options.page_cache)),
      cache(options.cache),
      fingerprint(fingerprint_of_tokens(layout)),
      files(std::move(layout.files)),
      array(std::make_shared<Array::Impl>(
          std::move(layout.layout),
          ArrayOptions{.budget = options.budget, .engine = engine, .cache = options.cache})),
      memory(options.budget, staging_size(options.budget), "buffer for tokens"),
      staging([this] { return std::make_unique<Staging>(array->budget, memory); }) {
  memory.keep_in_children();
}

Tokens::Impl::Staging::Staging(const Budget& budget, const PageBuffer& first)
    : budget_(budget), bytes_(first.size()), free_{first.data()} {}

std::byte* Tokens::Impl::Staging::take() {
  // A buffer is added only if the budget has at least this many times its size left.
  constexpr std::uint64_t kTimesLeft = 16;
  const std::size_t most = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 64);
  MutexLock lock(mutex_);
  while (free_.empty()) {
    if (added_.size() + 1 < most && budget_.left() >= kTimesLeft * bytes_) {
      try {
        added_.emplace_back(budget_, bytes_, "buffer for tokens");
        return added_.back().data();
      } catch (const Error&) {  // the budget was taken meanwhile
      }
    }
    given_back_.wait(mutex_);
  }
  std::byte* const data = free_.back();
  free_.pop_back();
  return data;
}

void Tokens::Impl::Staging::give_back(std::byte* data) {
  {
    const MutexLock lock(mutex_);
    free_.push_back(data);
  }
  given_back_.notify_one();
}

Tokens Tokens::open(const std::string& path_or_glob, const TokensOptions& options) {
  const RemoteOpening opening;  // shares what is learnt about URLs between both steps
  return open(expand_token_paths(path_or_glob), options);
}

Tokens Tokens::open(const std::vector<std::string>& paths, const TokensOptions& options) {
  if (paths.empty()) throw Error(ErrorKind::kInvalid, "open", "no file was named");
  const RemoteOpening opening(with_companions(paths));  // looks up all URLs at once
  TokenLayout tokens = read_token_layout(paths, {options.dtype});
  use_disk_cache(tokens.layout, options.disk_cache);
  keep_slice(tokens, options.start, options.stop);
  return Tokens(std::make_shared<Impl>(std::move(tokens), options));
}

Tokens Tokens::slice(std::int64_t start, std::optional<std::int64_t> stop) const {
  TokenLayout tokens{.layout = impl_->layout(),
                     .detail = impl_->format,
                     .first_token = impl_->first_token,
                     .files = impl_->files};
  keep_slice(tokens, start, stop);
  return Tokens(std::make_shared<Impl>(
      std::move(tokens),
      TokensOptions{.budget = budget(), .engine = impl_->engine, .cache = impl_->cache}));
}

std::uint64_t Tokens::size() const { return impl_->layout().rows; }
std::uint64_t Tokens::first_token() const { return impl_->first_token; }
DType Tokens::dtype() const { return impl_->layout().dtype; }
std::string Tokens::format() const { return impl_->format; }
const std::vector<std::string>& Tokens::paths() const { return impl_->layout().paths; }
const Budget& Tokens::budget() const { return impl_->array->budget; }
EngineReport Tokens::engine() const { return impl_->array->report(); }
ArrayStats Tokens::stats() const { return impl_->array->stats(); }
const std::string& Tokens::fingerprint() const { return impl_->fingerprint; }

void Tokens::crops(std::span<const std::uint64_t> starts, std::uint64_t count,
                   std::span<std::byte> out) const {
  for (const std::uint64_t start : starts) impl_->array->check_rows("tokens", start, count);
  const auto tokens = checked_mul(starts.size(), count);
  const auto needed = tokens ? checked_mul(*tokens, dtype().size) : std::nullopt;
  if (!needed || out.size() < *needed) {
    throw Error(ErrorKind::kInvalid, "tokens",
                with_commas(starts.size()) + " crops of " + with_commas(count) +
                    " tokens do not fit: `out` has " + with_commas(out.size()) + " bytes");
  }
  impl_->array->crops(starts, count, out.data());
}

void Tokens::xy(std::span<const std::uint64_t> starts, std::uint64_t block_size, DType type,
                std::span<std::byte> x, std::span<std::byte> y) const {
  const Layout& layout = impl_->layout();
  if (!can_widen(layout.dtype, type)) {
    throw Error(ErrorKind::kInvalid, "xy",
                "tokens stored as " + layout.dtype.name() + " cannot be returned as " + type.name())
        .hint("use int64, int32 or the stored dtype");
  }
  for (const std::uint64_t start : starts) check_crop(layout, start, block_size);
  const auto tokens = checked_mul(starts.size(), block_size);
  const auto needed = tokens ? checked_mul(*tokens, type.size) : std::nullopt;
  if (!needed || x.size() < *needed || y.size() < *needed) {
    throw Error(ErrorKind::kInvalid, "xy",
                with_commas(starts.size()) + " crops of " + with_commas(block_size) +
                    " tokens do not fit: x has " + with_commas(x.size()) + " bytes, y " +
                    with_commas(y.size()));
  }

  const Impl::Staging::Use staging(impl_->staging.get());
  // Read as many crops at a time as the buffer holds, and a longer crop in parts.
  const std::uint64_t capacity = impl_->memory.size() / layout.dtype.size;
  const std::uint64_t part = std::min(block_size, capacity - 1);
  const std::uint64_t together = std::max<std::uint64_t>(capacity / (part + 1), 1);
  for (std::uint64_t done = 0; done < block_size; done += part) {
    const std::uint64_t length = std::min(part, block_size - done);
    for (std::size_t first = 0; first < starts.size(); first += together) {
      const std::size_t count = std::min<std::size_t>(together, starts.size() - first);
      std::vector<std::uint64_t> shifted(
          starts.begin() + static_cast<std::ptrdiff_t>(first),
          starts.begin() + static_cast<std::ptrdiff_t>(first + count));
      for (std::uint64_t& start : shifted) start += done;
      impl_->array->crops(shifted, length + 1, staging.data());
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t at = ((first + i) * block_size + done) * type.size;
        const std::byte* stored = staging.data() + i * (length + 1) * layout.dtype.size;
        if (!widen_xy(layout.dtype, stored, length, type, x.data() + at, y.data() + at)) {
          throw token_too_large(layout, type);
        }
      }
    }
  }
}

void Batch::require(DType wanted) const {
  if (wanted == dtype_) return;
  throw Error(ErrorKind::kInvalid, "batch",
              "holds " + dtype_.name() + ", asked for as " + wanted.name());
}

}  // namespace evenkeel
