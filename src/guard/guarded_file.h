// One governed file: what of it is cached, and how that is released.
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

// tmpfs and its like, of which nothing can be released.
bool lies_in_memory(int fd);
// What MADV_PAGEOUT and cachestat ask of a user.
bool owns_or_may_write(int fd);

// With the mappings of it that are held, or were. One thread at a time.
class GuardedFile {
 public:
  // Throws Error (kSystem) when the file cannot be asked. `first` is advised as options say.
  GuardedFile(Fd fd, const GuardOptions& options, std::unique_ptr<GuardedMapping> first);

  bool is(std::uint64_t device, std::uint64_t inode) const {
    return device == device_ && inode == inode_;
  }
  void add(std::unique_ptr<GuardedMapping> mapping);
  GuardedMapping* find(std::uint64_t key) const;
  // Its advice is put back where it is still there. False when it is not held.
  bool remove(std::uint64_t key);
  const std::vector<std::unique_ptr<GuardedMapping>>& mappings() const { return mappings_; }
  // Forgets mappings that are not there any more; `lost` hears of each.
  void forget_lost(const std::function<void(const GuardedMapping&)>& lost);
  bool deleted() const;  // has no name any more

  // All bytes that are or were mapped, from the first to the last.
  std::uint64_t length() const { return length_; }
  // Whether its pages can be counted part by part. Otherwise signs of the whole process stand in.
  bool counted() const { return how_ == How::kCounted; }
  bool uncounted() const { return how_ == How::kUncounted; }  // neither for files in memory: tmpfs
  const std::string& limitation() const { return limitation_; }  // what does not work; may be empty
  std::string name() const;                                      // for messages
  void set_name(std::string name) { name_ = std::move(name); }

  void look(std::uint64_t now);
  const CacheMap& segments() const { return segments_; }
  void start_writing(std::size_t part);
  // Returns 0, or what the kernel refused with. What could not go shows in segments().
  int release(std::size_t part, std::uint64_t now);
  int release_all();

  // Empty where the kernel will not say.
  std::optional<AccessSample> sample() const;
  bool random() const { return random_; }
  unsigned returns() const { return returns_; }
  void set_random(bool random);
  // Is told of each switch; for mappings that are still to come.
  void on_switch(std::function<void(bool random)> call) { on_switch_ = std::move(call); }

 private:
  enum class How { kCounted, kUncounted, kInert };
  void cover(std::uint64_t begin, std::uint64_t end);
  int let_go(CacheMap::Range part);
  CacheMap::Found cached_in(CacheMap::Range part) const;
  void write_back(CacheMap::Range part, unsigned flags) const;
  void advise_first(GuardedMapping& mapping) const;
  static void advise_all_of(GuardedMapping& mapping, int advice);

  const Fd fd_;
  const GuardOptions options_;
  std::uint64_t device_ = 0, inode_ = 0;
  How how_ = How::kCounted;
  std::string limitation_, name_;
  std::uint64_t begin_, length_;  // in the file
  CacheMap segments_;             // from begin_ on
  std::vector<std::unique_ptr<GuardedMapping>> mappings_;
  bool random_ = false;
  unsigned returns_ = 0;
  std::function<void(bool)> on_switch_;
};

}  // namespace evenkeel
