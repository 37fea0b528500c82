// Reads objects through a cache on disk. Missing blocks are fetched whole and stored. Blocks in the
// cache are read with many requests in flight, as the engine `direct` reads files.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/sys.h"
#include "engine/arena.h"
#include "engine/engine.h"
#include "engine/queue.h"
#include "remote/disk_cache.h"
#include "remote/object.h"

namespace evenkeel {

// Adds its lifetime to a total.
class WaitTime {
 public:
  explicit WaitTime(std::atomic<std::uint64_t>& total)
      : total_(total), began_(sys::monotonic_ns()) {}
  ~WaitTime() { total_ += static_cast<std::uint64_t>(sys::monotonic_ns() - began_); }
  WaitTime(const WaitTime&) = delete;
  WaitTime& operator=(const WaitTime&) = delete;

 private:
  std::atomic<std::uint64_t>& total_;
  const std::int64_t began_;
};

// The state of one process for a cache on disk: the folder, a queue to read it with, and the blocks
// that were verified. Not thread-safe.
class CacheOfProcess {
 public:
  // Reads go into `memory`. `known` is how many blocks are remembered as verified, one byte each.
  CacheOfProcess(const Layout& layout, const std::string& spec, std::span<std::byte> memory,
                 std::uint64_t known);
  static std::uint64_t blocks_of(const Layout& layout);

  DiskCache cache;
  std::unique_ptr<ReadQueue> queue;

  // Whether this process verified the block's checksum or wrote the block. It need not be verified
  // again: a block gets its name when it is complete, and never changes afterwards.
  bool knows(std::uint32_t file, std::uint64_t block) const;
  void note(std::uint32_t file, std::uint64_t block);
  void forget(std::uint32_t file, std::uint64_t block);
  // Marks the block as recently used. `fd` is its file. Mostly without a system call.
  void touch(std::uint32_t file, std::uint64_t block, int fd);
  void replace_broken_queue();

 private:
  std::uint8_t* entry(std::uint32_t file, std::uint64_t block);

  std::vector<std::uint64_t> first_;  // the number of the first block of each file
  std::vector<std::uint8_t> known_;   // 0: not known; else the minute of the last touch, modulo 255
};

// One call of an engine's run. Extents are aligned to DiskCache::alignment, so that parts of blocks
// are read with O_DIRECT, straight to Extent::into if it is set. They are no longer than a block,
// so each lies in at most two blocks. A block that several extents need is fetched once. All
// arguments must outlive it.
class CachedRun {
 public:
  // Memory for one block and its header.
  static constexpr std::uint64_t kSlot = DiskCache::kHeader + DiskCache::kBlock;
  static constexpr std::uint64_t kLeastSlots = 6;  // half of it for parts of blocks; see `start`

  // `memory` is page-aligned. `keys` has the cache key of each file; a file whose key is empty is
  // not cached.
  CachedRun(const Layout& layout, Transfers& transfers, CacheOfProcess& cache,
            const std::vector<std::string>& keys, std::span<std::byte> memory,
            std::size_t in_flight, Feed& feed, std::atomic<std::uint64_t>& bytes_from_cache,
            std::atomic<std::uint64_t>& wait_ns);
  ~CachedRun();
  CachedRun(const CachedRun&) = delete;
  CachedRun& operator=(const CachedRun&) = delete;

  // Takes extents from the feed and starts their reads and transfers.
  void fill();
  bool idle() const {
    return blocks_.empty() && homeless_.empty() && disk_in_flight_ == 0 && !waiting_;
  }
  // Waits for something to arrive, but only briefly if `busy`.
  void wait(bool busy);

 private:
  using BlockName = std::pair<std::uint32_t, std::uint64_t>;  // file, number
  // An extent that is waiting for blocks.
  struct Read {
    Extent extent;
    std::uint64_t offset = 0, length = 0;  // the wanted bytes of the object
    // Extent::into, or where the parts of two blocks are joined. nullptr: the bytes lie in one
    // block and are handed to the feed from there.
    std::byte* out = nullptr;
    bool in_place = false;                // `out` is Extent::into, so the disk may write there
    std::optional<std::uint64_t> ticket;  // the arena's ticket for `out`
    unsigned missing = 0;                 // blocks that have not arrived yet
  };
  // The part of a read that lies in one block.
  struct Piece {
    std::shared_ptr<Read> read;
    BlockName name;
    std::uint64_t from = 0, to = 0;  // in the object
  };
  struct Block {
    std::size_t slot;
    std::uint64_t length;
    bool fetching = false;  // from the server; otherwise it is read from the disk
    RangeTransfer transfer;
    std::vector<Piece> pieces;
  };
  // A read of a block's file: the whole file into the block's slot, or a part of it.
  struct DiskRead {
    Fd fd;
    bool direct = true;
    BlockName name;
    std::optional<Piece> piece;  // set: a part of a verified block; empty: the whole block
    std::byte* buffer = nullptr;
    std::uint64_t length = 0, begin = 0;  // `begin` is the offset of a part in the object
    std::optional<std::uint64_t> ticket;  // the arena's ticket for a part that is not in place
  };

  struct Part {
    std::uint64_t begin = 0, length = 0;
  };

  bool start(const Extent& extent);
  Part part_of(const Piece& piece) const;
  bool place(const Piece& piece);
  bool read_part(const Piece& piece, std::byte* buffer, std::optional<std::uint64_t> ticket);
  void deliver(const Piece& piece, const std::byte* bytes);
  enum class BlockSource : std::uint8_t { kServer, kDisk };
  void finish_block(BlockName name, BlockSource source);
  void fetch(Block& block);
  void push(DiskRead read, std::uint64_t offset);
  void take_disk(std::size_t enough);
  void complete_disk(std::uint32_t id, std::int64_t result);
  std::byte* at(std::size_t slot) const { return memory_.data() + slot * kSlot; }
  const std::string& key(BlockName name) const { return keys_[name.first]; }

  const Layout& layout_;
  Transfers& transfers_;
  CacheOfProcess& cache_;
  const std::uint64_t alignment_;
  const std::vector<std::string>& keys_;
  const std::span<std::byte> memory_;  // slots; from `parts_` on, the arena
  std::byte* const parts_;
  const std::size_t in_flight_;  // the most requests to the server at a time
  Feed& feed_;
  std::atomic<std::uint64_t>& bytes_from_cache_;
  std::atomic<std::uint64_t>& wait_ns_;
  RingArena arena_;
  std::vector<std::size_t> free_;      // slots
  std::map<BlockName, Block> blocks_;  // being read or fetched
  std::size_t fetching_ = 0;           // of these, being fetched from the server
  std::deque<Piece> homeless_;         // pieces that are waiting for a slot
  std::vector<DiskRead> disk_;         // by id
  std::vector<std::uint32_t> free_ids_;
  std::size_t disk_in_flight_ = 0;
  std::vector<Transfer*> done_;
  std::optional<Extent> waiting_;  // taken from the feed, but there was no room yet
};

}  // namespace evenkeel
