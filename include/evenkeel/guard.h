// Keeps file mappings of this process under a line, while any code goes on using them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "evenkeel/compiler.h"

#pragma GCC visibility push(default)

namespace evenkeel {

enum class GuardAccess {
  kAuto,        // measured: readahead goes off where it fetches many times what is touched, and on
                // again where the mapping is read through
  kRandom,      // MADV_RANDOM: a fault fetches its page alone
  kSequential,  // MADV_SEQUENTIAL: a fault reads ahead
  kLeave,       // the program's own advice stays
};

struct GuardOptions {
  static constexpr std::uint64_t kLeastBudget = std::uint64_t{4} << 20;

  // Bytes that all mappings of the guard may occupy together: their pages in the page cache, mapped
  // or not; with keep_cache their resident pages. At least kLeastBudget. Release begins at 90 %.
  std::uint64_t budget = 0;
  // Takes pages out of the resident set only and leaves the page cache to the kernel: for killers
  // that look at RSS, and for files that other processes read as well.
  bool keep_cache = false;
  GuardAccess access = GuardAccess::kAuto;
};

// A file mapping that exists already.
struct GuardMapping {
  void* address = nullptr;  // as mmap gave it
  std::size_t length = 0;   // bytes
  int fd = -1;  // the mapped file, open in any mode; duplicated. Closing the duplicate drops this
                // process's POSIX record locks on the file, as closing any descriptor of it does
  std::uint64_t file_offset = 0;
  // A promise that remove() comes before the range is unmapped, moved or mapped over. It allows
  // MADV_DONTNEED on shared mappings, which would empty whatever else had taken the place. Without
  // it only MADV_PAGEOUT is used, which cannot lose a byte wherever it strikes, but does not reach
  // pages that other processes map too, files that the user neither owns nor may write, and a guard
  // with keep_cache.
  bool removed_before_unmap = false;
};

struct GuardReport {
  std::uint64_t budget = 0;
  std::size_t mappings = 0;       // governed now
  std::uint64_t cached = 0;       // bytes counted against the budget when last looked at
  std::uint64_t peak_cached = 0;  // the most of it that was seen
  std::uint64_t bytes_released = 0;
  std::uint64_t switches_to_random = 0;
  std::uint64_t switches_to_readahead = 0;
  std::uint64_t ticks = 0;            // times the governor woke
  std::uint64_t looks = 0;            // times it asked the page cache
  double cpu_seconds = 0;             // of its thread
  std::vector<std::string> failures;  // what does not work, and why; each once
};

// A thread that watches the page cache of file mappings and releases their oldest parts when the
// budget is nearly full. It never touches their pages, so a truncated file is no danger to it, and
// dirty pages are written before they go. The thread starts with the first mapping and ends with
// the last; it throws nothing and takes no signals. Costs no memory to speak of: a few bytes for
// each part of a mapping.
//
// What it holds: MAP_SHARED, and MAP_PRIVATE, writable or not, whose changed pages stay (they are
// anonymous memory, not the file's, and not counted). A file that is mapped twice counts once.
//
// The line is kept by releasing after the fact, so memory may pass it for a moment: by at most the
// larger of 32 MiB and 10 %, while a program fetches 1 GB/s. Mappings that fit the budget together
// are left alone.
//
// Thread-safe. After fork the child's guard has no mappings: it may add its own.
class Guard {
 public:
  // Throws Error (kInvalid) for a budget that is too small.
  explicit Guard(const GuardOptions& options);
  ~Guard();  // as remove() for all that is left
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Throws Error when the range is not wholly a mapping of that file (/proc/self/maps), and when
  // nothing of it could be released. An address that is known already is governed anew.
  void add(const GuardMapping& mapping);
  // Call before munmap. When it returns, the governor does not touch the range any more. The range
  // is as it was: readahead is on again. False when there is no such mapping: never added, added by
  // the parent of a fork, or found unmapped and forgotten.
  bool remove(const void* address);
  // Looks at the page cache, so it may take milliseconds for each GiB.
  GuardReport report() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace evenkeel

#pragma GCC visibility pop
