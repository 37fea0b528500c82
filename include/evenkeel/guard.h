// Keeps file mappings of this process within a budget, while any code goes on using them.
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
  int fd = -1;              // the mapped file, open in any mode
  std::uint64_t file_offset = 0;
  // A promise that remove() comes before the range is unmapped, moved or mapped over. It allows
  // MADV_DONTNEED on shared mappings, which would empty whatever else had taken the place. Without
  // it only MADV_PAGEOUT is used, which cannot lose a byte wherever it strikes, but does not reach
  // pages that other processes map too, files that the user neither owns nor may write, and a guard
  // with keep_cache.
  bool removed_before_unmap = false;
  // A promise that `fd` stays open until remove() returns. It is then used as it is. Without it the
  // guard duplicates `fd`; closing the duplicate drops the POSIX record locks of this process on
  // the file, as closing any descriptor of it does.
  bool closed_after_remove = false;
};

struct GuardReport {
  std::uint64_t budget = 0;
  std::size_t mappings = 0;       // guarded now
  std::uint64_t cached = 0;       // bytes counted against the budget when last looked at
  std::uint64_t peak_cached = 0;  // the highest `cached` so far
  // The same without pages that were cached before their file was added: they count only as long as
  // they are not released, that is while `cached` has not come down to the budget. This is what the
  // budget is compared with.
  std::uint64_t guarded_peak = 0;
  std::uint64_t bytes_released = 0;
  // Bytes that came into the page cache while guarded, and the size of the guarded files: from the
  // first to the last mapped byte, the highest sum so far. Where bytes_fetched is several times
  // file_bytes, pages were read again and again; a budget of file_bytes would hold them all. Files
  // whose page cache cannot be counted are not in bytes_fetched.
  std::uint64_t bytes_fetched = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t switches_to_random = 0;
  std::uint64_t switches_to_readahead = 0;
  std::uint64_t looks = 0;            // times the evictor asked the page cache
  double cpu_seconds = 0;             // of the evictor thread, for this guard
  std::vector<std::string> failures;  // what does not work, and why; each once
};

// Watches the page cache of file mappings and releases their oldest parts when the budget is nearly
// full. It never touches the pages, so a truncated file is no danger to it, and dirty pages are
// written before they go. All guards of a process share one thread, which starts with the first
// mapping, ends with the last, and blocks all signals. A guard needs a few bytes of memory for each
// part of a file, and one descriptor for each file, or none with closed_after_remove.
//
// Mappings may be MAP_SHARED or MAP_PRIVATE, writable or not. Changed pages of a private mapping
// stay: they are anonymous memory, and not counted. A file that is mapped twice counts once.
//
// Pages are released after they came, so memory may exceed the budget for a moment: by at most the
// larger of 32 MiB and 10 %, while a program brings in 1 GB/s and the disk keeps up with writing.
// If it gets higher, `failures` has a line with the peak. Mappings that fit the budget together are
// left alone.
//
// Thread-safe. After fork the guard of the child has no mappings. The child may add its own.
class Guard {
 public:
  // Throws Error (kInvalid) for a budget that is too small.
  explicit Guard(const GuardOptions& options);
  ~Guard();  // as remove() for all that is left
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Throws Error when the range is not wholly a mapping of that file (/proc/self/maps), and when
  // nothing of it could be released. A mapping at a known address replaces the one before.
  void add(const GuardMapping& mapping);
  // Call before munmap. After it returns, the guard does not touch the range any more, and its
  // readahead is on again. False when there is no such mapping: never added, added by the parent of
  // a fork, or found unmapped and forgotten.
  bool remove(const void* address);
  // Looks at the page cache, so it may take milliseconds for each GiB.
  GuardReport report() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace evenkeel

#pragma GCC visibility pop
