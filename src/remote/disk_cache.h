// A cache of objects' blocks on a local disk, within a limit of its own, shared by all processes
// that name the folder.
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

// "/nvme/ek:200GiB", taken apart. Throws Error (kInvalid).
struct DiskCacheSpec {
  std::string folder;
  std::uint64_t limit = 0;
};
DiskCacheSpec parse_disk_cache(const std::string& text);

// One block: 4 KiB that say what it is, with checksums, and then the bytes.
struct CachedBlock {
  std::string path;
  std::uint64_t bytes = 0;   // on the disk
  std::int64_t used_ns = 0;  // when it was last used, about
  bool unfinished = false;   // a process writes it, or died before it was whole
};

// Thread-safe, and safe among processes. A block appears under its name when all of it is written,
// and is used only if its checksums are right. Blocks that were not used for longest go first. All
// of it lies in FOLDER/evenkeel-blocks-1; nothing else in the folder is touched. Failing to store
// or to read is never an error: the bytes then come from the server.
class DiskCache {
 public:
  static constexpr std::uint64_t kBlock = 256 << 10, kHeader = 4096;

  // Makes the folder. Throws Error (kSystem).
  DiskCache(const std::string& folder, std::uint64_t limit);
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  // The key of an object's blocks. `identity` says which object it is, and which version.
  static std::string key_of(std::string_view identity, std::uint64_t size);

  // The bytes of a block into `out`, which has room for kHeader + kBlock and is aligned to pages;
  // they begin at out + kHeader. Their number, or 0: it is not there.
  std::uint64_t read(const std::string& key, std::uint64_t block, std::byte* out);
  // The same in steps, for callers with many reads under way: the file of a block, or empty;
  // whether what was read of it is the block (its bytes, or 0; then it is removed); that it was
  // used. Without `direct`, what is read goes through the page cache.
  Fd open(const std::string& key, std::uint64_t block, bool& direct) const;
  std::uint64_t check(const std::string& key, std::uint64_t block, std::span<const std::byte> file);
  void touch(const std::string& key, std::uint64_t block) const;
  // `bytes` lies at `room` + kHeader, as in `read`; the header goes before it. Whether the block is
  // there now.
  bool store(const std::string& key, std::uint64_t block, std::byte* room, std::uint64_t bytes);

  const std::string& folder() const { return root_; }
  // Of offsets, lengths and memory, for reads of the files that `open` returns.
  std::uint64_t alignment() const { return alignment_; }
  std::uint64_t limit() const { return limit_; }

  // For `evenkeel cache`. These work without a limit.
  static std::string root_of(const std::string& folder);
  static std::vector<CachedBlock> list(const std::string& root);
  // Whether a file is a whole block.
  static bool verify(const std::string& path);
  // Removes all blocks and what was left unfinished; bytes freed.
  static std::uint64_t clear(const std::string& root);

 private:
  // "ab/abcd...-17", in root_.
  static std::string name_of(const std::string& key, std::uint64_t block);
  std::string path_of(const std::string& key, std::uint64_t block) const {
    return root_ + "/" + name_of(key, block);
  }
  // Takes `bytes` of the limit and opens a file for them; empty: there is no room.
  Fd reserve(std::uint64_t bytes, std::string& name);
  std::uint64_t make_room(std::uint64_t wanted);  // with the file locked

  const std::string root_;
  const Fd root_fd_;  // names of blocks are looked up from here, which is faster
  const std::uint64_t limit_;
  std::uint64_t alignment_ = kHeader;  // every device takes it
  struct Usage {
    Mutex mutex;
    Fd fd GUARDED_BY(mutex);  // holds how many bytes are taken; locked while it is changed
  };
  // Each process has its own: one that is inherited would share its lock.
  PerProcess<Usage> usage_;
};

}  // namespace evenkeel
