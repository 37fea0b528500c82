// The cache of an array: which blocks hold which rows, and when caching is worthwhile.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "array/plan.h"
#include "base/mutex.h"
#include "base/per_process.h"
#include "cache/block_cache.h"
#include "cache/repeat_detector.h"
#include "engine/files.h"
#include "format/layout.h"

namespace evenkeel {

// Rows of 256 bytes and more are blocks, large ones several. Smaller rows, such as tokens, are
// cached in blocks of 1 KiB of the file, and requests are then aligned to these, so that blocks
// arrive whole. If rows are not read again soon, as in a scan or an exact shuffle, the cache stays
// off: it holds no memory, and nothing is looked up. Bytes that came from the page cache are not
// cached.
//
// Thread-safe. A child of fork starts with an empty cache.
class RowCache {
 public:
  // Longer reads are scans, which are fast on disk: their rows are not cached.
  static constexpr std::uint64_t kLargestPiece = 256 << 10;

  // `layout` must outlive it. It holds at most `most_bytes`, or less if the budget leaves less.
  RowCache(const Layout& layout, const Budget& budget, std::uint64_t most_bytes);

  // Whether these rows can be cached. Rows cannot be cached if they are in Fortran order, above 512
  // KiB, stored out of order, or small and in more than 2^20 files.
  static bool takes(const Layout& layout);

  // Bytes that it uses while it is off.
  static std::uint64_t memory();

  bool on() { return state_.get().on.load(std::memory_order_acquire); }
  // The alignment that requests should have while it is on.
  std::uint64_t alignment() const { return by_offset_ ? block_bytes_ : 1; }

  // Copies the whole piece to its place. Returns false if not all of it is cached.
  bool get(const Piece& piece);
  // A quick check whether `get` would succeed. Counts a miss if not. `place` becomes the address of
  // the first bytes, for prefetching.
  bool has(const Piece& piece, const std::byte*& place);
  // Prefetches what `has` needs.
  void prefetch(const Piece& piece);
  // Offers `length` bytes of the piece's file, which were read from the disk at `offset`.
  void put(const Piece& piece, std::uint64_t offset, std::uint64_t length, const std::byte* data);

  // Throws Error (kFormat) if a file has changed since open. Call it for files whose pieces `get`
  // copied.
  void require_unchanged(std::uint32_t file);

  struct Totals {
    std::uint64_t hits = 0, misses = 0;  // blocks, while it was on
    std::uint64_t bytes = 0;             // copied out of it
    std::uint64_t held = 0;              // bytes it occupies now
  };
  Totals totals() const;

 private:
  static constexpr std::size_t kCounters = 16;  // each thread uses one of these
  struct alignas(64) Counter {
    std::atomic<std::uint64_t> hits = 0, misses = 0, bytes = 0;
  };
  struct State {
    State(const RowCache& owner, const Budget& budget);
    std::atomic<bool> on = false;
    const std::shared_ptr<BlockCache> blocks;
    RepeatDetector detector;
    std::array<Counter, kCounters> counters;
    Mutex mutex;
    FileSet files GUARDED_BY(mutex);
    // Totals when the cache was switched on or last judged.
    std::uint64_t hits_then GUARDED_BY(mutex) = 0, misses_then GUARDED_BY(mutex) = 0;
  };
  // Bytes of one block.
  struct BlockSpan {
    std::uint64_t block, begin, length;
    std::uint64_t offset;        // of the block in the file
    std::uint64_t block_length;  // shorter at the end of a row or file
  };
  static Counter& counter(State& state);
  BlockSpan span_at(const Piece& piece, std::uint64_t offset) const;
  bool too_long(const Piece& piece) const;
  void switch_on(State& state);
  void switch_off_if_useless(State& state);

  const Layout& layout_;
  const std::uint64_t most_bytes_;
  const bool by_offset_;            // blocks are parts of the file, not of a row
  const std::uint64_t row_blocks_;  // blocks per row
  const std::uint64_t block_bytes_;
  PerProcess<State> state_;
};

}  // namespace evenkeel
