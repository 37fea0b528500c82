// Blocks of files that are asked for again and again, in memory that the budget leaves.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/memory.h"
#include "base/mutex.h"
#include "base/reclaimable.h"
#include "cache/frequency.h"

namespace evenkeel {

// Blocks of one size, by number. Memory is reserved from the budget in slabs as blocks come in, and
// given back when others need it. Which blocks stay: those that are asked for most. A new block
// replaces the least used of a few others if it was itself asked for more often lately (TinyLFU's
// admission over a sampled LFU). So neither a scan nor a loop that is larger than the cache clears
// it. bench/cache_policies compares this with LRU, S3-FIFO, CLOCK-Pro, W-TinyLFU and the optimum.
//
// Thread-safe. Blocks are spread over shards by hash, each with a mutex of its own, which is held
// for a lookup and a copy. Belongs to the process that made it: a child of fork may not use it, and
// does not get its memory (MADV_DONTFORK).
class BlockCache final : public Reclaimer {
 public:
  // What a block costs besides its bytes: key, count, buckets of the table, the sketch; and what
  // growing takes for a moment.
  static constexpr std::uint64_t kBookkeepingOfBlock = 56;
  // `most_bytes` is what it may hold, if the budget leaves as much.
  static std::shared_ptr<BlockCache> make(const Budget& budget, std::uint64_t block_bytes,
                                          std::uint64_t most_bytes);

  // Copies `length` bytes of a block, from `begin` on, to `out`. False: the block is not here.
  bool get(std::uint64_t block, std::uint64_t begin, std::uint64_t length, std::byte* out);
  // Brings to the processor what the next lookup of a block needs. For lookups of many blocks: each
  // would wait for memory.
  void prefetch(std::uint64_t block) const;
  // Where a block lies, as a guess that may be wrong at once, or be of another block whose hash is
  // alike: not to be read from, but to be prefetched. nullptr: it is not here.
  const std::byte* find(std::uint64_t block);
  // A block that was read, of up to block_bytes. It may be kept or not.
  void put(std::uint64_t block, const std::byte* data, std::uint64_t length);

  void reclaim(std::uint64_t bytes) noexcept override;

  std::uint64_t block_bytes() const { return block_bytes_; }
  std::uint64_t blocks() const;                            // held now
  std::uint64_t bytes() const { return memory_.bytes(); }  // reserved now, bookkeeping included
  std::uint64_t most_blocks() const;                       // if it had all that the budget leaves

 private:
  struct Bucket {
    std::uint32_t tag = 0;
    std::uint32_t slot = kNone;
  };
  static constexpr std::uint32_t kNone = UINT32_MAX;

  // Slots below `used` hold blocks; slot s lies in slab s / slots_of_slab_.
  struct alignas(64) Shard {
    mutable Mutex mutex;
    std::vector<Pages> slabs GUARDED_BY(mutex);
    std::vector<std::uint64_t> keys GUARDED_BY(mutex);   // by slot
    std::vector<std::uint8_t> counts GUARDED_BY(mutex);  // by slot: uses lately
    std::vector<Bucket> table GUARDED_BY(mutex);         // open addressing, a power of two
    // Of the table, for `prefetch`, which holds no mutex. They may be out of date.
    std::atomic<const Bucket*> table_hint = nullptr;
    std::atomic<std::size_t> mask_hint = 0;
    FrequencySketch others GUARDED_BY(mutex);  // uses of blocks that are not here
    std::uint32_t used GUARDED_BY(mutex) = 0;
    std::uint32_t hand GUARDED_BY(mutex) = 0;            // where to look for the next victim
    std::uint64_t accesses GUARDED_BY(mutex) = 0;        // since the counts were halved
    std::uint32_t puts_to_growth GUARDED_BY(mutex) = 0;  // after growth was refused
  };

  BlockCache(const Budget& budget, std::uint64_t block_bytes, std::uint64_t most_bytes);
  static std::uint64_t hash_of(std::uint64_t block) { return mix_bits(block); }
  static std::size_t shard_number(std::uint64_t hash) { return hash >> 32 & (kShards - 1); }
  Shard& shard_of(std::uint64_t hash) { return shards_[shard_number(hash)]; }
  std::byte* place(const Shard& shard, std::uint32_t slot) const REQUIRES(shard.mutex);
  static std::size_t bucket_of(const Shard& shard, std::uint64_t hash, std::uint64_t block)
      REQUIRES(shard.mutex);
  static void set_table(Shard& shard, std::vector<Bucket> table) REQUIRES(shard.mutex);
  static void insert(Shard& shard, std::uint64_t hash, std::uint32_t slot) REQUIRES(shard.mutex);
  static void erase(Shard& shard, std::uint32_t slot) REQUIRES(shard.mutex);
  static void count_access(Shard& shard) REQUIRES(shard.mutex);
  static std::uint32_t least_used(Shard& shard, std::uint32_t end) REQUIRES(shard.mutex);
  static std::size_t table_size(std::size_t slots);
  static void shrink_tables(Shard& shard) noexcept REQUIRES(shard.mutex);
  bool grow(Shard& shard) EXCLUDES(shard.mutex);
  std::uint64_t shrink(Shard& shard) noexcept EXCLUDES(shard.mutex);
  std::uint64_t slab_cost() const;

  static constexpr std::size_t kShards = 32;
  const std::uint64_t block_bytes_, stride_;  // a block's bytes, and from one block to the next
  const std::uint64_t most_bytes_;
  const std::uint64_t slab_bytes_;
  const std::uint32_t slots_of_slab_;
  ReclaimableMemory memory_;
  std::array<Shard, kShards> shards_;
  std::atomic<std::size_t> next_to_shrink_ = 0;
};

}  // namespace evenkeel
