#include "cache/block_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "base/checked.h"
#include "base/prefetch.h"
#include "base/sys.h"

namespace evenkeel {
namespace {

// The size of a huge page, for fewer page-table walks. Small caches have smaller slabs, several for
// each shard.
constexpr std::uint64_t kLargestSlab = 2 << 20;
constexpr std::uint64_t kSmallestSlab = 16 << 10;
// A new block must have been requested more often than its victim by more than this margin. In
// training, every block is requested once per epoch. A block that was requested in this epoch
// already has one request more than a cached block that is still to come, and must not replace it.
constexpr std::uint32_t kAdmissionMargin = 1;
constexpr std::uint32_t kVictims = 8;              // how many candidates to compare
constexpr std::uint32_t kPutsBetweenGrowth = 256;  // in a shard, after the budget had no room
constexpr std::uint64_t kAccessesOfBlock = 10;     // counts are halved after this many per block

std::uint64_t slab_size(std::uint64_t most_bytes, std::uint64_t stride, std::uint64_t shards) {
  const std::uint64_t wanted = std::clamp(most_bytes / shards / 4, kSmallestSlab, kLargestSlab);
  return round_up(std::max(round_down(wanted, kSmallestSlab), stride), sys::page_size());
}

}  // namespace

BlockCache::BlockCache(const Budget& budget, std::uint64_t block_bytes, std::uint64_t most_bytes)
    : block_bytes_(block_bytes),
      stride_(round_up(block_bytes, 8)),
      most_bytes_(most_bytes),
      slab_bytes_(slab_size(std::min(most_bytes, budget.limit()), stride_, kShards)),
      slots_of_slab_(static_cast<std::uint32_t>(slab_bytes_ / stride_)),
      memory_(budget, "cached blocks") {}

std::shared_ptr<BlockCache> BlockCache::make(const Budget& budget, std::uint64_t block_bytes,
                                             std::uint64_t most_bytes) {
  std::shared_ptr<BlockCache> cache(new BlockCache(budget, block_bytes, most_bytes));
  cache->memory_.serve(cache);
  return cache;
}

std::uint64_t BlockCache::slab_cost() const {
  return slab_bytes_ + slots_of_slab_ * kBookkeepingOfBlock;
}

std::uint64_t BlockCache::most_blocks() const {
  return std::min(memory_.most_bytes(), most_bytes_) / slab_cost() * slots_of_slab_;
}

std::uint64_t BlockCache::blocks() const {
  std::uint64_t sum = 0;
  for (const Shard& shard : shards_) {
    const MutexLock lock(shard.mutex);
    sum += shard.used;
  }
  return sum;
}

std::byte* BlockCache::place(const Shard& shard, std::uint32_t slot) const {
  return shard.slabs[slot / slots_of_slab_].data() + slot % slots_of_slab_ * stride_;
}

// The bucket of a block, or the free bucket where it would go.
std::size_t BlockCache::bucket_of(const Shard& shard, std::uint64_t hash, std::uint64_t block) {
  const std::size_t mask = shard.table.size() - 1;
  const auto tag = static_cast<std::uint32_t>(hash);
  std::size_t at = tag & mask;
  for (;; at = (at + 1) & mask) {
    const Bucket& bucket = shard.table[at];
    if (bucket.slot == kNone) return at;
    if (bucket.tag == tag && shard.keys[bucket.slot] == block) return at;
  }
}

void BlockCache::insert(Shard& shard, std::uint64_t hash, std::uint32_t slot) {
  shard.table[bucket_of(shard, hash, shard.keys[slot])] = {static_cast<std::uint32_t>(hash), slot};
}

// Closes the gap: later buckets move up unless that would move them before their home.
void BlockCache::erase(Shard& shard, std::uint32_t slot) {
  const std::size_t mask = shard.table.size() - 1;
  std::size_t gap = bucket_of(shard, hash_of(shard.keys[slot]), shard.keys[slot]);
  for (std::size_t at = (gap + 1) & mask; shard.table[at].slot != kNone; at = (at + 1) & mask) {
    const std::size_t home = shard.table[at].tag & mask;
    if (((at - home) & mask) < ((at - gap) & mask)) continue;
    shard.table[gap] = shard.table[at];
    gap = at;
  }
  shard.table[gap].slot = kNone;
}

void BlockCache::count_access(Shard& shard) {
  if (++shard.accesses < kAccessesOfBlock * std::max<std::uint64_t>(shard.keys.size(), 64)) return;
  shard.accesses = 0;
  for (std::uint8_t& count : shard.counts) count /= 2;
  shard.others.halve();
}

bool BlockCache::get(std::uint64_t block, std::uint64_t begin, std::uint64_t length,
                     std::byte* out) {
  const std::uint64_t hash = hash_of(block);
  Shard& shard = shard_of(hash);
  const MutexLock lock(shard.mutex);
  if (shard.used == 0) return false;
  const std::uint32_t slot = shard.table[bucket_of(shard, hash, block)].slot;
  if (slot == kNone) return false;
  count_access(shard);
  std::uint8_t& count = shard.counts[slot];
  if (count < FrequencySketch::kMost) ++count;
  std::memcpy(out, place(shard, slot) + begin, length);
  return true;
}

void BlockCache::prefetch(std::uint64_t block) const {
  const std::uint64_t hash = hash_of(block);
  const Shard& shard = shards_[shard_number(hash)];
  const Bucket* const table = shard.table_hint.load(std::memory_order_relaxed);
  const std::size_t mask = shard.mask_hint.load(std::memory_order_relaxed);
  if (table) prefetch_memory(table + (static_cast<std::uint32_t>(hash) & mask), 1);
}

// Compares only the tag: comparing the key would wait for memory once more.
const std::byte* BlockCache::find(std::uint64_t block) {
  const std::uint64_t hash = hash_of(block);
  const auto tag = static_cast<std::uint32_t>(hash);
  Shard& shard = shard_of(hash);
  const MutexLock lock(shard.mutex);
  if (shard.used == 0) return nullptr;
  const std::size_t mask = shard.table.size() - 1;
  for (std::size_t at = tag & mask;; at = (at + 1) & mask) {
    const Bucket& bucket = shard.table[at];
    if (bucket.slot == kNone) return nullptr;
    if (bucket.tag != tag) continue;
    prefetch_memory(&shard.keys[bucket.slot], 1);
    prefetch_memory(&shard.counts[bucket.slot], 1);
    return place(shard, bucket.slot);
  }
}

std::uint32_t BlockCache::least_used(Shard& shard, std::uint32_t end) {
  std::uint32_t least = kNone;
  for (std::uint32_t i = 0; i < kVictims; ++i) {
    if (++shard.hand >= end) shard.hand = 0;
    if (least == kNone || shard.counts[shard.hand] < shard.counts[least]) least = shard.hand;
  }
  return least;
}

void BlockCache::put(std::uint64_t block, const std::byte* data, std::uint64_t length) {
  const std::uint64_t hash = hash_of(block);
  Shard& shard = shard_of(hash);
  MutexLock lock(shard.mutex);
  if (shard.used == shard.keys.size()) {
    if (shard.puts_to_growth > 0) {
      --shard.puts_to_growth;
    } else {
      lock.unlock();
      const bool grown = grow(shard);
      lock.lock();
      if (!grown) shard.puts_to_growth = kPutsBetweenGrowth;
    }
    if (shard.keys.empty()) return;
  }
  if (shard.table[bucket_of(shard, hash, block)].slot != kNone) return;  // another thread was first
  count_access(shard);
  const std::uint32_t count = shard.others.add(hash);
  std::uint32_t slot = shard.used;
  if (slot < shard.keys.size()) {
    ++shard.used;
  } else {
    slot = least_used(shard, shard.used);
    if (count <= shard.counts[slot] + kAdmissionMargin) return;
    erase(shard, slot);
    shard.others.raise(hash_of(shard.keys[slot]), shard.counts[slot]);
  }
  shard.keys[slot] = block;
  shard.counts[slot] = static_cast<std::uint8_t>(count);
  insert(shard, hash, slot);
  std::memcpy(place(shard, slot), data, length);
}

// The size of a hash table for `slots` slots, so that it is at most three quarters full.
std::size_t BlockCache::table_size(std::size_t slots) {
  std::size_t size = 16;
  while (size * 3 < slots * 4) size *= 2;
  return size;
}

// Replaces the table and inserts all blocks.
void BlockCache::set_table(Shard& shard, std::vector<Bucket> table) {
  shard.table = std::move(table);
  shard.table_hint.store(shard.table.empty() ? nullptr : shard.table.data(),
                         std::memory_order_relaxed);
  shard.mask_hint.store(shard.table.empty() ? 0 : shard.table.size() - 1,
                        std::memory_order_relaxed);
  for (std::uint32_t slot = 0; slot < shard.used; ++slot) {
    insert(shard, hash_of(shard.keys[slot]), slot);
  }
}

bool BlockCache::grow(Shard& shard) {
  if (memory_.bytes() + slab_cost() > most_bytes_ || !memory_.try_grow(slab_cost())) return false;
  try {
    Pages slab(slab_bytes_, "cached blocks");
    sys::madvise(slab.data(), slab.size(), MADV_DONTFORK);
    const MutexLock lock(shard.mutex);
    const std::size_t slots = shard.keys.size() + slots_of_slab_;
    shard.slabs.reserve(shard.slabs.size() + 1);
    shard.keys.reserve(slots);
    shard.counts.reserve(slots);
    if (shard.table.size() * 3 < slots * 4) {
      std::vector<Bucket> table(table_size(slots));
      shard.others.resize(slots);
      set_table(shard, std::move(table));
    }
    shard.slabs.push_back(std::move(slab));
    shard.keys.resize(slots);
    shard.counts.resize(slots);
    return true;
  } catch (const std::exception&) {  // no memory: the cache keeps its size
    memory_.shrink(slab_cost());
    return false;
  }
}

// Frees the bookkeeping of a slab, too. If the smaller tables cannot be allocated, the old ones
// stay.
void BlockCache::shrink_tables(Shard& shard) noexcept {
  const std::size_t slots = shard.keys.size();
  try {
    shard.keys.shrink_to_fit();
    shard.counts.shrink_to_fit();
    if (slots == 0) {
      set_table(shard, {});
      shard.others = FrequencySketch();
      return;
    }
    const std::size_t size = table_size(slots);
    if (size >= shard.table.size()) return;
    std::vector<Bucket> table(size);
    shard.others.resize(slots);
    set_table(shard, std::move(table));
  } catch (const std::exception&) {
  }
}

// Frees the last slab of a shard. Its most used blocks replace less used ones in other slabs.
std::uint64_t BlockCache::shrink(Shard& shard) noexcept {
  Pages slab;
  {
    const MutexLock lock(shard.mutex);
    if (shard.slabs.empty()) return 0;
    const auto kept = static_cast<std::uint32_t>(shard.keys.size() - slots_of_slab_);
    for (std::uint32_t slot = kept; slot < shard.used; ++slot) {
      erase(shard, slot);
      if (kept == 0) continue;
      const std::uint32_t victim = least_used(shard, kept);
      if (shard.counts[slot] <= shard.counts[victim]) continue;
      erase(shard, victim);
      shard.keys[victim] = shard.keys[slot];
      shard.counts[victim] = shard.counts[slot];
      insert(shard, hash_of(shard.keys[victim]), victim);
      std::memcpy(place(shard, victim), place(shard, slot), block_bytes_);
    }
    shard.used = std::min(shard.used, kept);
    shard.keys.resize(kept);
    shard.counts.resize(kept);
    shrink_tables(shard);
    slab = std::move(shard.slabs.back());
    shard.slabs.pop_back();
    shard.puts_to_growth = kPutsBetweenGrowth;
  }
  slab = Pages();
  memory_.shrink(slab_cost());
  return slab_cost();
}

void BlockCache::reclaim(std::uint64_t bytes) noexcept {
  std::uint64_t freed = 0;
  for (std::size_t empty = 0; freed < bytes && empty < kShards;) {
    const std::uint64_t now = shrink(shards_[next_to_shrink_++ % kShards]);
    freed += now;
    empty = now == 0 ? empty + 1 : 0;
  }
}

}  // namespace evenkeel
