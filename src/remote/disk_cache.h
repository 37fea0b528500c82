// A cache of object blocks on a local disk. It has its own limit and is shared by all processes
// that use the same folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/per_process.h"

namespace evenkeel {

// Parses "/nvme/ek:200GiB". Throws Error (kInvalid).
struct DiskCacheSpec {
  std::string folder;
  std::uint64_t limit = 0;
};
DiskCacheSpec parse_disk_cache(const std::string& text);

// A block on the disk: a header of 4 KiB with its key and checksums, then the data.
struct CachedBlock {
  std::string path;
  std::uint64_t bytes = 0;   // on the disk
  std::int64_t used_ns = 0;  // about when it was last used
  bool unfinished = false;   // a process is writing it, or died before it was complete
};

// Thread-safe, also across processes. A block appears under its name when it is completely written,
// and is used only if its checksums are valid. The least recently used blocks are removed first.
// All files are in FOLDER/evenkeel-blocks-1; nothing else in the folder is touched. A failed store
// or read is never an error: the bytes then come from the server.
class DiskCache {
 public:
  static constexpr std::uint64_t kBlock = 256 << 10, kHeader = 4096;

  // Creates the folder. Throws Error (kSystem).
  DiskCache(const std::string& folder, std::uint64_t limit);
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  // The key of an object's blocks. `identity` names the object and its version.
  static std::string key_of(std::string_view identity, std::uint64_t size);

  // Reads a block into `out`, which must have room for kHeader + kBlock bytes and be aligned to
  // pages. The data begins at out + kHeader. Returns its length; 0 if there is no such block.
  std::uint64_t read(const std::string& key, std::uint64_t block, std::byte* out);
  // The steps of `read`, for callers with many reads in flight. `open` returns the file of a block,
  // or empty. It clears `direct` if reads go through the page cache. `check` returns the length of
  // the data that was read; if it is not the block, it removes the file and returns 0. `touch`
  // records the use of an open file, at most once a minute: every time would write its inode.
  Fd open(const std::string& key, std::uint64_t block, bool& direct) const;
  std::uint64_t check(const std::string& key, std::uint64_t block, std::span<const std::byte> file);
  static void touch(int fd);
  // Stores a block whose data of `bytes` bytes begins at `room` + kHeader, as in `read`; the header
  // is written before it. Returns whether the block was stored.
  bool store(const std::string& key, std::uint64_t block, std::byte* room, std::uint64_t bytes);

  const std::string& folder() const { return root_; }
  // Of offsets, lengths and memory, for reads of the files that `open` returns.
  std::uint64_t alignment() const { return alignment_; }
  std::uint64_t limit() const { return limit_; }

  // For `evenkeel cache`. These need no limit.
  static std::string root_of(const std::string& folder);
  static std::vector<CachedBlock> list(const std::string& root);
  // Whether a file is a complete block with valid checksums.
  static bool verify(const std::string& path);
  // Removes all blocks and abandoned files. Returns the bytes freed.
  static std::uint64_t clear(const std::string& root);

 private:
  // "ab/abcd...-17", in root_.
  static std::string name_of(const std::string& key, std::uint64_t block);
  std::string path_of(const std::string& key, std::uint64_t block) const {
    return root_ + "/" + name_of(key, block);
  }
  // Reserves `bytes` of the limit and opens a file for them; empty if there is no room.
  Fd reserve(std::uint64_t bytes, std::string& name);
  std::uint64_t make_room(std::uint64_t wanted);  // call with the file locked

  const std::string root_;
  const Fd root_fd_;  // names of blocks are looked up from here, which is faster
  const std::uint64_t limit_;
  std::uint64_t alignment_ = kHeader;  // every device takes it
  struct Usage {
    Mutex mutex;
    Fd fd GUARDED_BY(mutex);  // the file with the number of bytes in use; locked for changes
  };
  // Each process has its own, because an inherited descriptor would share its lock.
  PerProcess<Usage> usage_;
};

}  // namespace evenkeel
