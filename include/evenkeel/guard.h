// Keeps file mappings of this process within a budget while any code uses them.
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
  kAuto,    // measured: readahead is turned off if it fetches many times what is touched, and on
            // again if the mapping is read sequentially
  kRandom,  // MADV_RANDOM: a fault fetches only its page
  kSequential,  // MADV_SEQUENTIAL: a fault reads ahead
  kLeave,       // keeps the program's own advice
};

struct GuardOptions {
  static constexpr std::uint64_t kLeastBudget = std::uint64_t{4} << 20;

  // Bytes that all mappings of the guard may occupy together: their pages in the page cache, mapped
  // or not; with keep_cache their resident pages. At least kLeastBudget. Release begins at 90 %.
  std::uint64_t budget = 0;
  // Removes pages only from the resident set and leaves the page cache to the kernel. For OOM
  // killers that look at RSS, and for files that other processes read as well.
  bool keep_cache = false;
  GuardAccess access = GuardAccess::kAuto;
};

// A file mapping that exists already.
struct GuardMapping {
  void* address = nullptr;  // as mmap returned it
  std::size_t length = 0;   // bytes
  int fd = -1;              // the mapped file, open in any mode
  std::uint64_t file_offset = 0;
  // A promise to call remove() before the range is unmapped, moved or mapped over. It allows
  // MADV_DONTNEED on shared mappings, which would erase the contents of another mapping at the same
  // address. Without the promise only MADV_PAGEOUT is used. It never loses data, but it does not
  // work for pages that other processes map too, for files that the user neither owns nor may
  // write, and with keep_cache.
  bool removed_before_unmap = false;
  // A promise that `fd` stays open until remove() returns. The guard then uses `fd` itself. Without
  // the promise it duplicates `fd`, and closing the duplicate drops the POSIX record locks of this
  // process on the file, as closing any descriptor of the file does.
  bool closed_after_remove = false;
};

struct GuardReport {
  std::uint64_t budget = 0;
  std::size_t mappings = 0;       // guarded now
  std::uint64_t cached = 0;       // bytes counted against the budget at the last count
  std::uint64_t peak_cached = 0;  // the highest `cached` so far
  // Like peak_cached, but pages that were cached before their file was added count only until they
  // are released, that is until `cached` has fallen to the budget. Compare the budget with this
  // number.
  std::uint64_t guarded_peak = 0;
  std::uint64_t bytes_released = 0;
  // Bytes that came into the page cache while guarded, and the size of the guarded files: from the
  // first to the last mapped byte, the highest sum so far. If bytes_fetched is several times
  // file_bytes, pages were read repeatedly; a budget of file_bytes would hold them all. Files whose
  // page cache cannot be counted are not in bytes_fetched.
  std::uint64_t bytes_fetched = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t switches_to_random = 0;
  std::uint64_t switches_to_readahead = 0;
  std::uint64_t looks = 0;            // how often the evictor counted cached pages
  double cpu_seconds = 0;             // of the evictor thread, for this guard
  std::vector<std::string> failures;  // what does not work, and why; each once
};

// Watches the page cache of file mappings and releases their oldest parts when the budget is nearly
// full. It never touches the pages, so a truncated file cannot make it crash. Dirty pages are
// written before they are released. All guards of a process share one thread, which starts with the
// first mapping, ends with the last, and blocks all signals. A guard needs a few bytes of memory
// for each part of a file, and one descriptor for each file, or none with closed_after_remove.
//
// Mappings may be MAP_SHARED or MAP_PRIVATE, writable or not. Modified pages of a private mapping
// stay: they are anonymous memory and are not counted. A file that is mapped twice counts once.
//
// Pages are released after they were read, so memory may briefly exceed the budget: by at most the
// larger of 32 MiB and 10 % if a program reads 1 GB/s and the disk keeps up with writing. If it
// exceeds that, `failures` has a line with the peak. If all mappings together fit the budget,
// nothing is released.
//
// Thread-safe. After fork the guard of the child has no mappings. The child may add its own.
class Guard {
 public:
  // Throws Error (kInvalid) for a budget that is too small.
  explicit Guard(const GuardOptions& options);
  ~Guard();  // calls remove() for all remaining mappings
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Throws Error if the range is not entirely a mapping of that file (/proc/self/maps), or if
  // nothing of it could be released. A mapping at an address that was added before replaces the
  // earlier one.
  void add(const GuardMapping& mapping);
  // Call this before munmap. After it returns, the guard no longer touches the range, and its
  // readahead is on again. Returns false if there is no such mapping: it was never added, it was
  // added before a fork by the parent, or the guard found it unmapped and removed it.
  bool remove(const void* address);
  // Counts cached pages, so it may take milliseconds per GiB.
  GuardReport report() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace evenkeel

#pragma GCC visibility pop
