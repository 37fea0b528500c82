// Reading objects through a cache on disk: whole blocks are fetched, stored, and copied from.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "remote/disk_cache.h"
#include "remote/object.h"

namespace evenkeel {

// One call of an engine's run. Extents are no longer than a block, so that each lies in two at
// most; a block that several extents want is fetched once. All that it refers to must outlive it.
class CachedRun {
 public:
  // Memory for one block and what says what it is.
  static constexpr std::uint64_t kSlot = DiskCache::kHeader + DiskCache::kBlock;
  static constexpr std::uint64_t kLeastSlots = 5;  // see `start`

  // `memory`: slots, aligned to pages. `keys`: of each file, in the cache; empty: it
  // is not kept there.
  CachedRun(const Layout& layout, Transfers& transfers, DiskCache& cache,
            const std::vector<std::string>& keys, std::span<std::byte> memory,
            std::size_t in_flight, Feed& feed, std::atomic<std::uint64_t>& bytes_from_cache);

  // Takes extents from the feed and starts what they need.
  void fill();
  bool idle() const { return blocks_.empty() && !waiting_; }
  // A block has come.
  void complete(Transfer* transfer);

 private:
  using BlockName = std::pair<std::uint32_t, std::uint64_t>;  // file, number
  // An extent that waits for blocks.
  struct Read {
    Extent extent;
    std::uint64_t offset, length;     // of the object, what is to be copied
    std::byte* out;                   // to here
    const std::byte* data;            // for the feed; nullptr: at its target
    std::optional<std::size_t> slot;  // that holds it
    unsigned missing = 0;             // blocks
  };
  struct Block {
    std::size_t slot;
    std::uint64_t length;
    RangeTransfer transfer;
    std::vector<std::shared_ptr<Read>> readers;
  };

  bool start(const Extent& extent);
  std::byte* at(std::size_t slot) const { return memory_.data() + slot * kSlot; }
  void copy(const Read& read, std::uint64_t block, std::uint64_t length,
            const std::byte* bytes) const;
  void finish(const Read& read);
  std::size_t take_slot();

  const Layout& layout_;
  Transfers& transfers_;
  DiskCache& cache_;
  const std::vector<std::string>& keys_;
  const std::span<std::byte> memory_;
  const std::size_t in_flight_;
  Feed& feed_;
  std::atomic<std::uint64_t>& bytes_from_cache_;
  std::vector<std::size_t> free_;      // slots; slot 0 is for what is read from the disk
  std::map<BlockName, Block> blocks_;  // under way
  std::optional<Extent> waiting_;      // pulled, but there was no room yet
};

}  // namespace evenkeel
