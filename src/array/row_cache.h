// The cache of an array: which blocks its rows lie in, and when caching is worth while.
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
// arrive whole. Where rows are never read again soon, as in a scan or an exact shuffle, the cache
// stays off: it holds no memory, and nothing is looked up. Bytes that came from the page cache are
// not cached again.
//
// Thread-safe. A child of fork starts with an empty one.
class RowCache {
 public:
  // `layout` must outlive it. `most_bytes`: what it may hold; less where the budget leaves less.
  RowCache(const Layout& layout, const Budget& budget, std::uint64_t most_bytes);

  // Whether these rows can be cached: not those in Fortran order, above 512 KiB, in other order
  // than their files have them, or small ones in more than 2^20 files.
  static bool takes(const Layout& layout);

  // Bytes that it uses while it is off.
  static std::uint64_t memory();

  bool on() { return state_.get().on.load(std::memory_order_acquire); }
  // The alignment that requests should have while it is on.
  std::uint64_t alignment() const { return by_offset_ ? block_bytes_ : 1; }

  // Copies the whole piece to its place. False: not all of it is here.
  bool get(const Piece& piece);
  // Whether `get` would, as far as can be told quickly. Counts a miss if not. `place` is where the
  // first bytes lie, to be prefetched.
  bool has(const Piece& piece, const std::byte*& place);
  // Brings to the processor what `has` needs.
  void prefetch(const Piece& piece);
  // Bytes of the piece's file that were read from the disk, from `offset` on.
  void put(const Piece& piece, std::uint64_t offset, std::uint64_t length, const std::byte* data);

  // Throws Error (kFormat) when a file is not what it was at open. For files whose pieces `get`
  // gave.
  void require_unchanged(std::uint32_t file);

  struct Totals {
    std::uint64_t hits = 0, misses = 0;  // blocks, while it was on
    std::uint64_t bytes = 0;             // copied out of it
    std::uint64_t held = 0;              // bytes it occupies now
  };
  Totals totals() const;

 private:
  static constexpr std::size_t kCounters = 16;  // threads count in one of these
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
    // Totals when it was switched on, or last looked at.
    std::uint64_t hits_then GUARDED_BY(mutex) = 0, misses_then GUARDED_BY(mutex) = 0;
  };
  // Bytes of one block.
  struct BlockSpan {
    std::uint64_t block, begin, length;
    std::uint64_t offset;        // of the block in the file
    std::uint64_t block_length;  // what the file has of it
  };
  static Counter& counter(State& state);
  BlockSpan span_at(const Piece& piece, std::uint64_t offset) const;
  bool too_long(const Piece& piece) const;
  void switch_on(State& state);
  void switch_off_if_useless(State& state);

  const Layout& layout_;
  const std::uint64_t most_bytes_;
  const bool by_offset_;            // blocks are of the file, not of a row
  const std::uint64_t row_blocks_;  // blocks of a row
  const std::uint64_t block_bytes_;
  PerProcess<State> state_;
};

}  // namespace evenkeel
