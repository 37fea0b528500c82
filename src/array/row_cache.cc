#include "array/row_cache.h"

#include <algorithm>
#include <functional>
#include <thread>

#include "array/row_extents.h"
#include "base/checked.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kSmallestRow = 256;      // rows from this size on are blocks
constexpr std::uint64_t kBlockOfFile = 1 << 10;  // for smaller rows
constexpr std::uint64_t kLargestBlock = 32 << 10;
constexpr std::uint64_t kLargestRow = 512 << 10;
// The key of a block of a file has 20 bits for the file and 44 for the number of the block.
constexpr int kNumberBits = 44;
constexpr std::uint64_t kMostFiles = std::uint64_t{1} << (64 - kNumberBits);
// Repeats are detected up to a distance of this many times the size of the cache.
constexpr std::uint64_t kCachesFollowed = 8;
constexpr std::uint64_t kDetector = 32 << 10;     // see RepeatDetector
constexpr std::uint64_t kLeastLookups = 1 << 16;  // before the cache is judged by its hits

}  // namespace

bool RowCache::takes(const Layout& layout) {
  return (!layout.fortran || layout.row_bytes == layout.dtype.size) &&
         layout.row_bytes <= kLargestRow && layout.rows > 0 &&
         (layout.row_bytes >= kSmallestRow || layout.segments.size() <= kMostFiles) &&
         stored_in_order(layout);
}

std::uint64_t RowCache::memory() { return sizeof(State) + sizeof(BlockCache) + kDetector; }

RowCache::RowCache(const Layout& layout, const Budget& budget, std::uint64_t most_bytes)
    : layout_(layout),
      most_bytes_(most_bytes),
      by_offset_(layout.row_bytes < kSmallestRow),
      row_blocks_(divide_up(layout.row_bytes, kLargestBlock)),
      block_bytes_(by_offset_ ? kBlockOfFile : divide_up(layout.row_bytes, row_blocks_)),
      state_([this, budget] { return std::make_unique<State>(*this, budget); }) {}

RowCache::State::State(const RowCache& owner, const Budget& budget)
    : blocks(BlockCache::make(budget, owner.block_bytes_, owner.most_bytes_)),
      detector(std::min(owner.layout_.bytes() / owner.block_bytes_ + 1,
                        kCachesFollowed * (blocks->most_blocks() + 1))),
      files(owner.layout_, 0) {}

RowCache::Counter& RowCache::counter(State& state) {
  static thread_local const std::size_t place =
      std::hash<std::thread::id>()(std::this_thread::get_id()) % kCounters;
  return state.counters[place];
}

RowCache::BlockSpan RowCache::span_at(const Piece& piece, std::uint64_t offset) const {
  const std::uint64_t end = piece.end();
  if (by_offset_) {
    const std::uint64_t number = offset / block_bytes_, begin = offset % block_bytes_;
    const std::uint64_t start = number * block_bytes_;
    const std::uint64_t size = layout_.segments[piece.file].identity.size;
    return {(std::uint64_t{piece.file} << kNumberBits) + number, begin,
            std::min(end - offset, block_bytes_ - begin), start,
            std::min(block_bytes_, size - start)};
  }
  const Stretch stretch = stretch_at(layout_, piece.file, offset);
  const std::uint64_t within = offset - stretch.offset;
  const std::uint64_t row = within / layout_.row_bytes, place = within % layout_.row_bytes;
  const std::uint64_t number = place / block_bytes_, begin = place % block_bytes_;
  const std::uint64_t start = number * block_bytes_;
  const std::uint64_t length = std::min(block_bytes_, layout_.row_bytes - start);
  return {(stretch.first_row + row) * row_blocks_ + number, begin,
          std::min(end - offset, length - begin), offset - begin, length};
}

bool RowCache::too_long(const Piece& piece) const {
  return piece.length > std::max(kLargestPiece, layout_.row_bytes);
}

bool RowCache::get(const Piece& piece) {
  if (too_long(piece)) return false;
  State& state = state_.get();
  Counter& counts = counter(state);
  std::uint64_t blocks = 0;
  for (std::uint64_t offset = piece.offset; offset < piece.end(); ++blocks) {
    const BlockSpan span = span_at(piece, offset);
    if (!state.blocks->get(span.block, span.begin, span.length,
                           piece.out + (offset - piece.offset))) {
      counts.misses.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    offset += span.length;
  }
  counts.hits.fetch_add(blocks, std::memory_order_relaxed);
  counts.bytes.fetch_add(piece.length, std::memory_order_relaxed);
  return true;
}

void RowCache::prefetch(const Piece& piece) {
  if (too_long(piece)) return;
  State& state = state_.get();
  int blocks = 0;  // only the first few of a long piece
  for (std::uint64_t offset = piece.offset; offset < piece.end() && blocks < 4; ++blocks) {
    const BlockSpan span = span_at(piece, offset);
    state.blocks->prefetch(span.block);
    offset += span.length;
  }
}

bool RowCache::has(const Piece& piece, const std::byte*& place) {
  if (too_long(piece)) return false;
  State& state = state_.get();
  place = nullptr;
  for (std::uint64_t offset = piece.offset; offset < piece.end();) {
    const BlockSpan span = span_at(piece, offset);
    const std::byte* const found = state.blocks->find(span.block);
    if (!found) {
      counter(state).misses.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    if (!place) place = found + span.begin;
    offset += span.length;
  }
  return true;
}

void RowCache::put(const Piece& piece, std::uint64_t offset, std::uint64_t length,
                   const std::byte* data) {
  if (too_long(piece)) return;
  State& state = state_.get();
  if (!state.on.load(std::memory_order_relaxed)) {
    const std::uint64_t block = span_at(piece, piece.offset).block;
    const std::uint64_t blocks = divide_up(piece.length, block_bytes_) + (by_offset_ ? 1 : 0);
    if (state.detector.repeats(block, blocks, [&] { return state.blocks->most_blocks(); }))
      switch_on(state);
    return;
  }
  const std::uint64_t end = std::min(offset + length, layout_.segments[piece.file].identity.size);
  for (std::uint64_t at = piece.offset; at < piece.end();) {
    const BlockSpan span = span_at(piece, at);
    if (span.offset >= offset && span.offset + span.block_length <= end) {
      state.blocks->put(span.block, data + (span.offset - offset), span.block_length);
    }
    at += span.length;
  }
  if (counter(state).misses.load(std::memory_order_relaxed) % 4096 == 0) {
    switch_off_if_useless(state);
  }
}

void RowCache::switch_on(State& state) {
  const MutexLock lock(state.mutex);
  const Totals now = totals();
  state.hits_then = now.hits;
  state.misses_then = now.misses;
  state.on.store(true, std::memory_order_release);
}

void RowCache::switch_off_if_useless(State& state) {
  {
    const MutexLock lock(state.mutex);
    const Totals now = totals();  // under the lock: another thread may have stored later ones
    const std::uint64_t hits = now.hits - state.hits_then, misses = now.misses - state.misses_then;
    if (hits + misses < std::max(kLeastLookups, 4 * state.blocks->most_blocks())) return;
    state.hits_then = now.hits;
    state.misses_then = now.misses;
    if (hits * 50 >= hits + misses) return;
    state.on.store(false, std::memory_order_release);
  }
  state.blocks->reclaim(UINT64_MAX);
}

// If the quick check is not sure, it verifies a descriptor of its own as strictly as reads do.
void RowCache::require_unchanged(std::uint32_t file) {
  // Every response of a server was checked when it was read. Chunks are separate files.
  if (layout_.segments[file].remote || layout_.chunks) return;
  if (surely_unchanged(layout_.segments[file])) return;
  State& state = state_.get();
  const MutexLock lock(state.mutex);
  const Pin pin(state.files, file);
  state.files.verify(file);
}

RowCache::Totals RowCache::totals() const {
  Totals totals;
  const State* const state = state_.if_made();
  if (!state) return totals;
  for (const Counter& counter : state->counters) {
    totals.hits += counter.hits.load(std::memory_order_relaxed);
    totals.misses += counter.misses.load(std::memory_order_relaxed);
    totals.bytes += counter.bytes.load(std::memory_order_relaxed);
  }
  totals.held = state->blocks->bytes();
  return totals;
}

}  // namespace evenkeel
