// A guarded file: counts its cached pages and releases them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "evenkeel/guard.h"
#include "guard/access.h"
#include "guard/cache_map.h"
#include "guard/guarded_mapping.h"

namespace evenkeel {

// Whether the file is in tmpfs, ramfs or hugetlbfs, whose pages cannot be released.
bool lies_in_memory(int fd);
// MADV_PAGEOUT and cachestat need one of these permissions.
bool owns_or_may_write(int fd);

// Owns the mappings of the file. Not thread-safe.
class GuardedFile {
 public:
  // Throws Error (kSystem) if fstat fails. Advises `first` as the options say. `fd` may be empty if
  // `first` has a descriptor.
  GuardedFile(Fd fd, const GuardOptions& options, std::unique_ptr<GuardedMapping> first);

  // Keeps `fd`, a descriptor of the file, unless it has one already.
  void adopt(Fd fd);
  // Sets how to open the file again. While the file has no mappings, the descriptor is then closed,
  // so that its file system can be unmounted, and opened only to count and release pages.
  void reopen_by(std::function<Fd()> open) { reopen_ = std::move(open); }
  // Opens the file if it is closed. Returns false if that fails.
  bool reopen();
  void add(std::unique_ptr<GuardedMapping> mapping);
  GuardedMapping* find(std::uint64_t key) const;
  // Takes back the advice if the mapping still exists. Returns false if the key is unknown.
  bool remove(std::uint64_t key);
  const std::vector<std::unique_ptr<GuardedMapping>>& mappings() const { return mappings_; }
  // Forgets mappings that do not exist any more, and calls `lost` for each.
  void forget_lost(const std::function<void(const GuardedMapping&)>& lost);
  bool deleted() const;  // no name of the file is left

  // Bytes from the first to the last byte that is or was mapped.
  std::uint64_t length() const { return length_; }
  // Whether its pages can be counted part by part. For uncounted files the activity counters of the
  // process are used instead. Files in memory (tmpfs) are neither.
  bool counted() const { return how_ == How::kCounted; }
  bool uncounted() const { return how_ == How::kUncounted; }
  const std::string& limitation() const { return limitation_; }  // what does not work; may be empty
  const std::string& name() const { return name_; }              // for messages
  std::uint64_t readahead() const;  // bytes that a major fault may fetch beyond its page
  void set_name(std::string name) { name_ = std::move(name); }

  void look(std::uint64_t now);
  const CacheMap& cache_map() const { return cache_map_; }
  // One start, then one finish, for each part; many parts may be started before the first is
  // finished. Both return 0 or the errno of the kernel. Pages that stay are counted in cache_map().
  // Dirty pages stay until they are written, which is started but not waited for.
  int start_release(std::size_t part);
  int finish_release(std::size_t part, std::uint64_t now);
  // Waits for dirty pages to be written.
  int release_all();

  // Empty if the kernel refuses.
  std::optional<AccessSample> sample() const;
  bool random() const { return random_; }
  unsigned returns() const { return returns_; }
  void set_random(bool random);
  // Faults fetch less from now on while readahead is on. For many processes, whose readahead alone
  // would fill the budget.
  void limit_readahead();
  // Called at each switch, so that later mappings can be advised in the same way.
  void on_switch(std::function<void(bool random)> call) { on_switch_ = std::move(call); }
  // Call it before the file is forgotten. Nobody would switch later mappings back to readahead.
  void forgotten();

 private:
  enum class How { kCounted, kUncounted, kInert };
  class Reopened;
  int fd() const;
  void close_unmapped();
  void cover(std::uint64_t begin, std::uint64_t end);
  int start_let_go(CacheMap::Range part);
  int finish_let_go(CacheMap::Range part);
  CacheMap::Found cached_in(CacheMap::Range part) const;
  void write_back(CacheMap::Range part, unsigned flags) const;
  void advise_first(GuardedMapping& mapping);
  void advise_readahead(GuardedMapping& mapping);
  static void advise_all_of(GuardedMapping& mapping, int advice);

  Fd fd_;  // may be empty; then a mapping has a descriptor
  const GuardOptions options_;
  std::uint64_t readahead_ = 0;  // bytes, of the device
  How how_ = How::kCounted;
  std::string limitation_, name_;
  std::uint64_t begin_, length_;  // in the file
  CacheMap cache_map_;            // starts at begin_
  std::vector<std::unique_ptr<GuardedMapping>> mappings_;
  bool random_ = false, limited_ = false;
  unsigned returns_ = 0;
  std::function<void(bool)> on_switch_;
  std::function<Fd()> reopen_;
};

}  // namespace evenkeel
