// One governed mapping: what of it is cached, and how it is released.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.h"
#include "evenkeel/guard.h"
#include "guard/access.h"
#include "guard/segments.h"
#include "guard/vma.h"

namespace evenkeel {

// One thread at a time.
class Watched {
 public:
  // Throws Error as Guard::add. `maps` must outlive it.
  Watched(const GuardMapping& mapping, const GuardOptions& options, const Maps& maps);

  const void* address() const { return begin_; }
  AddressRange range() const { return range_; }
  std::uint64_t length() const { return range_.end - range_.begin; }
  // Whether its pages can be counted part by part. Otherwise signs of the whole process stand in.
  bool counted() const { return how_ == How::kCounted; }
  bool uncounted() const { return how_ == How::kUncounted; }  // neither for files in memory: tmpfs
  const std::string& limitation() const { return limitation_; }  // what does not work; may be empty
  std::string name() const;                                      // for messages

  // Whether the range still is this mapping, by the kernel's books. To be asked before the calls
  // below, so that what has taken its place is left alone. Were it not asked, nothing would be
  // lost.
  bool still_there() const { return covers(maps_.in(range_), range_, vma_); }

  void look(std::uint64_t now);
  const Segments& segments() const { return segments_; }
  void start_writing(std::size_t part);
  // Returns false when the kernel refused; errno says why. What could not go shows in segments().
  bool release(std::size_t part, std::uint64_t now);
  bool release_all();

  // Empty where the kernel will not say.
  std::optional<AccessSample> sample(PageMap& pages) const;
  bool random() const { return random_; }
  unsigned returns() const { return returns_; }
  void set_random(bool random);
  void restore_advice();

 private:
  enum class How { kCounted, kUncounted, kInert };
  void open(int fd);
  void refuse_what_cannot_work(bool permitted) const;
  bool let_go(Segments::Range part);
  Segments::Found cached_in(Segments::Range part) const;
  int advise(Segments::Range part, int advice) const;
  void advise_all(int advice);

  const Maps& maps_;
  char* const begin_;
  const AddressRange range_;
  const std::uint64_t file_offset_;
  const bool promised_, keep_cache_;
  Fd fd_;
  Vma vma_;  // where the range begins
  How how_ = How::kCounted;
  std::string limitation_;
  Segments segments_;
  bool advised_ = false, random_ = false;
  unsigned returns_ = 0;
};

}  // namespace evenkeel
