// Caches blocks of files that are requested repeatedly, in memory that the budget leaves.
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

// Holds numbered blocks of one size. Memory is reserved from the budget in slabs as blocks come in,
// and given back when something else needs it. The blocks that are requested most stay: a new block
// replaces the least used of a few others if it was requested more often recently (TinyLFU's
// admission over a sampled LFU). So neither a scan nor a loop that is larger than the cache clears
// it. bench/cache_policies compares this with LRU, S3-FIFO, CLOCK-Pro, W-TinyLFU and the optimum.
//
// Thread-safe. Blocks are spread over shards by hash. Each shard has its own mutex, which is held
// for a lookup and a copy. The cache belongs to the process that made it: a child of fork must not
// use it, and does not get its memory (MADV_DONTFORK).
class BlockCache final : public Reclaimer {
 public:
  // What a block costs besides its bytes: key, count, buckets of the table, the sketch, and what
  // growing needs temporarily.
  static constexpr std::uint64_t kBookkeepingOfBlock = 56;
  // The cache holds at most `most_bytes`, or less if the budget leaves less.
  static std::shared_ptr<BlockCache> make(const Budget& budget, std::uint64_t block_bytes,
                                          std::uint64_t most_bytes);

  // Copies `length` bytes of a block, from `begin` on, to `out`. Returns false if the block is not
  // cached.
  bool get(std::uint64_t block, std::uint64_t begin, std::uint64_t length, std::byte* out);
  // Prefetches what the next lookup of a block needs. For lookups of many blocks, each of which
  // would wait for memory.
  void prefetch(std::uint64_t block) const;
  // Returns a guess at the address of a block, or nullptr if it is not cached. The block may move
  // at once, and the address may belong to another block with the same hash tag. So it may be
  // prefetched, but not read.
  const std::byte* find(std::uint64_t block);
  // Offers a block that was read, of up to block_bytes. The cache may keep it or not.
  void put(std::uint64_t block, const std::byte* data, std::uint64_t length);

  void reclaim(std::uint64_t bytes) noexcept override;

  std::uint64_t block_bytes() const { return block_bytes_; }
  std::uint64_t blocks() const;                            // in the cache now
  std::uint64_t bytes() const { return memory_.bytes(); }  // reserved now, including bookkeeping
  std::uint64_t most_blocks() const;                       // with all memory that the budget leaves

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
    std::vector<std::uint8_t> counts GUARDED_BY(mutex);  // by slot: recent uses
    std::vector<Bucket> table GUARDED_BY(mutex);         // open addressing, a power of two
    // Address and mask of the table for `prefetch`, which holds no mutex. They may be out of date.
    std::atomic<const Bucket*> table_hint = nullptr;
    std::atomic<std::size_t> mask_hint = 0;
    FrequencySketch others GUARDED_BY(mutex);  // uses of blocks that are not cached
    std::uint32_t used GUARDED_BY(mutex) = 0;
    std::uint32_t hand GUARDED_BY(mutex) = 0;            // where the search for a victim starts
    std::uint64_t accesses GUARDED_BY(mutex) = 0;        // since the counts were halved
    std::uint32_t puts_to_growth GUARDED_BY(mutex) = 0;  // puts to wait after growth was refused
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
  const std::uint64_t block_bytes_, stride_;  // bytes of a block, and distance between blocks
  const std::uint64_t most_bytes_;
  const std::uint64_t slab_bytes_;
  const std::uint32_t slots_of_slab_;
  ReclaimableMemory memory_;
  std::array<Shard, kShards> shards_;
  std::atomic<std::size_t> next_to_shrink_ = 0;
};

}  // namespace evenkeel
