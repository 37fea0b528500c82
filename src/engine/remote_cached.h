// Reading objects through a cache on disk. What is missing is fetched in whole blocks and stored;
// what is there is read by many requests at once, as the engine `direct` reads files.
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

// Adds the time of its life to a total.
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

// What a process has of a cache on disk: the folder, a queue to read it with, and which blocks it
// knows to be right. One thread at a time.
class CacheOfProcess {
 public:
  // `memory`: what is read goes there. `known`: so many blocks are remembered, a byte each.
  CacheOfProcess(const Layout& layout, const std::string& spec, std::span<std::byte> memory,
                 std::uint64_t known);
  static std::uint64_t blocks_of(const Layout& layout);

  DiskCache cache;
  std::unique_ptr<ReadQueue> queue;

  // Whether a block's checksum was right in this process, or it wrote the block. It need not be
  // compared again: a block appears under its name when it is whole, and then never changes.
  bool knows(std::uint32_t file, std::uint64_t block) const;
  void note(std::uint32_t file, std::uint64_t block);
  void forget(std::uint32_t file, std::uint64_t block);
  // Notes that it is used, about once a minute.
  void touch(std::uint32_t file, std::uint64_t block, const std::string& key);
  void replace_broken_queue();

 private:
  std::uint8_t* entry(std::uint32_t file, std::uint64_t block);

  std::vector<std::uint64_t> first_;  // of each file: the number of its first block
  std::vector<std::uint8_t> known_;   // 0: not known; else the minute it was last touched, about
};

// One call of an engine's run. Extents are aligned to DiskCache::alignment, so that parts of blocks
// are read with O_DIRECT, straight to Extent::into where there is one. They are no longer than a
// block, so that each lies in two at most; a block that several extents want is fetched once. All
// that it refers to must outlive it.
class CachedRun {
 public:
  // Memory for one block and what says what it is.
  static constexpr std::uint64_t kSlot = DiskCache::kHeader + DiskCache::kBlock;
  static constexpr std::uint64_t kLeastSlots = 6;  // half of them for parts of blocks; see `start`

  // `memory`: aligned to pages. `keys`: of each file, in the cache; empty: it is not kept there.
  CachedRun(const Layout& layout, Transfers& transfers, CacheOfProcess& cache,
            const std::vector<std::string>& keys, std::span<std::byte> memory,
            std::size_t in_flight, Feed& feed, std::atomic<std::uint64_t>& bytes_from_cache,
            std::atomic<std::uint64_t>& wait_ns);
  ~CachedRun();
  CachedRun(const CachedRun&) = delete;
  CachedRun& operator=(const CachedRun&) = delete;

  // Takes extents from the feed and starts what they need.
  void fill();
  bool idle() const {
    return blocks_.empty() && homeless_.empty() && disk_in_flight_ == 0 && !waiting_;
  }
  // Waits for something to arrive; not for long if `busy`.
  void wait(bool busy);

 private:
  using BlockName = std::pair<std::uint32_t, std::uint64_t>;  // file, number
  // An extent that waits for blocks.
  struct Read {
    Extent extent;
    std::uint64_t offset = 0, length = 0;  // of the object, what is wanted
    // Where it is wanted, or where the parts of two blocks are put together; nullptr: it lies in
    // one, and is handed on from there.
    std::byte* out = nullptr;
    bool in_place = false;                // `out` is Extent::into, so that the disk may write there
    std::optional<std::uint64_t> ticket;  // of the arena, for `out`
    unsigned missing = 0;                 // blocks
  };
  // What a read wants of one block.
  struct Piece {
    std::shared_ptr<Read> read;
    BlockName name;
    std::uint64_t from = 0, to = 0;  // in the object
  };
  struct Block {
    std::size_t slot;
    std::uint64_t length;
    bool fetching = false;  // from the server; else from the disk
    RangeTransfer transfer;
    std::vector<Piece> pieces;
  };
  // A read of a block's file: all of it, into the slot of a block, or a part.
  struct DiskRead {
    Fd fd;
    bool direct = true;
    BlockName name;
    std::optional<Piece> piece;  // of a block that is known to be right; empty: all of the block
    std::byte* buffer = nullptr;
    std::uint64_t length = 0, begin = 0;  // `begin`: where it begins in the object, for a part
    std::optional<std::uint64_t> ticket;  // of the arena, for a part that is not read in place
  };

  struct Part {
    std::uint64_t begin = 0, length = 0;
  };

  bool start(const Extent& extent);
  Part part_of(const Piece& piece) const;
  bool place(const Piece& piece);
  bool read_part(const Piece& piece, std::byte* buffer, std::optional<std::uint64_t> ticket);
  void deliver(const Piece& piece, const std::byte* bytes);
  void finish_block(BlockName name, bool fetched);
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
  const std::span<std::byte> memory_;  // slots, and from `parts_` on what the arena hands out
  std::byte* const parts_;
  const std::size_t in_flight_;  // requests to the server, at most
  Feed& feed_;
  std::atomic<std::uint64_t>& bytes_from_cache_;
  std::atomic<std::uint64_t>& wait_ns_;
  RingArena arena_;
  std::vector<std::size_t> free_;      // slots
  std::map<BlockName, Block> blocks_;  // under way
  std::size_t fetching_ = 0;           // of these, from the server
  std::deque<Piece> homeless_;         // pieces that wait for a slot
  std::vector<DiskRead> disk_;         // by id
  std::vector<std::uint32_t> free_ids_;
  std::size_t disk_in_flight_ = 0;
  std::vector<Transfer*> done_;
  std::optional<Extent> waiting_;  // pulled, but there was no room yet
};

}  // namespace evenkeel
