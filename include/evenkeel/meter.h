// What the kernel reports about the memory of a process, a tree of processes or a file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/compiler.h"

#pragma GCC visibility push(default)

namespace evenkeel {

// All in bytes, from /proc/PID/status.
struct ProcessMemory {
  std::uint64_t anon = 0;         // RssAnon: heap, stacks, buffers
  std::uint64_t file = 0;         // RssFile: pages of mapped files
  std::uint64_t shmem = 0;        // RssShmem: tmpfs, shared anonymous memory
  std::uint64_t page_tables = 0;  // VmPTE
  std::uint64_t swap = 0;         // VmSwap
  std::uint64_t peak_rss = 0;     // VmHWM: the kernel's own high-water mark
  std::uint64_t rss() const { return anon + file + shmem; }
};

// `pid` 0 is this process. Throws Error (kSystem) if there is no such process.
ProcessMemory process_memory(pid_t pid = 0);

// Bytes that a process has read from storage so far (/proc/PID/io read_bytes), O_DIRECT included.
// Empty if the kernel does not report it.
std::optional<std::uint64_t> disk_bytes_read(pid_t pid = 0);

// Activity of a process so far, from /proc/PID/stat and /proc/PID/io.
struct ProcessCounters {
  std::uint64_t major_faults = 0;  // page faults that waited for storage
  std::uint64_t minor_faults = 0;  // page faults that did not
  double cpu_seconds = 0;          // user and system, in steps of the kernel's tick (mostly 10 ms)
  // Bytes read from storage. The kernel includes those of children that the process has waited for.
  // Empty for processes of other users, where the kernel does not report it.
  std::optional<std::uint64_t> disk_read;
};

// `pid` 0 is this process. Throws Error (kSystem, ESRCH) if there is no such process.
ProcessCounters process_counters(pid_t pid = 0);

// Proportional set size in bytes: each page divided by the number of processes that map it, so that
// sums over processes are exact. The kernel walks all pages for it: 10 to 15 ms per GiB. Empty if
// it is not permitted, and for a process that has ended.
std::optional<std::uint64_t> process_pss(pid_t pid = 0);

// Memory and activity of a process and its descendants.
struct TreeMemory {
  ProcessMemory memory;      // sums; a page counts once for each process that maps it. peak_rss is
                             // 0: peaks at different times cannot be added
  ProcessCounters counters;  // since the tree was created; see ProcessTree
  std::uint32_t processes = 0;   // living ones
  std::uint32_t unmeasured = 0;  // at least this many could not be opened: too few descriptors
};

// Follows a process and all its descendants. A descendant that was seen once is followed even after
// its parent has ended. A descendant that starts and ends between two samples, or whose parent ends
// before it is seen, is missed. Its activity is in the counters if a parent in the tree waited for
// it.
//
// Counters start when the tree is created and cover all processes, ended ones included. An ended
// process contributes what its parent inherited, or else its last sample. Counters never decrease.
//
// Holds four descriptors per process. A sample of one process takes about 15 us. It looks for new
// children when the system has created a process or thread, and spends at most 0.3 % of the time on
// that.
// Not thread-safe.
class ProcessTree {
 public:
  // 0 is this process. Throws Error (kSystem, ESRCH) if there is no such process.
  explicit ProcessTree(pid_t root);
  ProcessTree(ProcessTree&&) noexcept;
  ProcessTree& operator=(ProcessTree&&) noexcept;
  ~ProcessTree();

  // Empty once the root and all descendants that were seen have ended. A zombie has ended.
  std::optional<TreeMemory> sample();
  // Only resident memory, for use between two calls of sample(): it is cheaper. Counters, page
  // tables and swap keep their last values. So does RssShmem; changes of it count as RssFile. A
  // process that has ended no longer counts, but only the next sample() removes it.
  ProcessMemory sample_resident();
  // As of the last sample; after an empty one, the final counts.
  ProcessCounters counters() const;
  // Living ones as of the last sample, parents before their children.
  std::vector<pid_t> processes() const;
  // The sum of process_pss. Walks all pages: it costs what process_pss does, for each process.
  // Empty if reading one of them is not permitted.
  std::optional<std::uint64_t> pss();
  // Memory as of the last sample, with pages that several processes map counted once: after fork,
  // or when several map one file. Exact at the last pss(). Between two calls of pss(), a forked
  // child counts with what it adds, and pages that several processes may have mapped since then
  // count once. Before the first call, and on kernels that do not report PSS by kind (before 5.4),
  // these are the sums of sample().
  ProcessMemory distinct() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

struct FileInUse {
  std::string path;
  std::uint64_t size = 0;  // bytes
  std::uint64_t device = 0, inode = 0;
};

// The data files of a process: regular files of at least `least_size` bytes that it has open for
// reading or maps. Each is listed once. Files mapped with execute permission (programs and
// libraries), deleted files, memfds, and files in /dev, /proc and /sys are left out. Empty if it is
// not permitted, and for a process that has ended.
std::vector<FileInUse> files_in_use(pid_t pid, std::uint64_t least_size);

struct FileCache {
  std::uint64_t cached = 0;   // bytes of the file in the page cache
  std::uint64_t dirty = 0;    // cached bytes not yet written back
  std::uint64_t evicted = 0;  // bytes that were in the cache and have been evicted
  std::string source;         // "cachestat" or "mincore" (which reports only `cached`)
};

// Empty if the kernel does not report it: cachestat needs Linux 6.5 and a file the caller owns or
// may write; mincore needs the same ownership. Throws Error (kSystem) if the file cannot be opened.
std::optional<FileCache> file_cache(const std::string& path);

// Drops the clean pages of a file from the page cache: fsync, then POSIX_FADV_DONTNEED. Returns the
// bytes still cached (mapped pages stay), or empty if the kernel does not report it.
std::optional<std::uint64_t> drop_file_cache(const std::string& path);

// Readahead of the device that holds a file, in bytes; empty if sysfs does not report it.
std::optional<std::uint64_t> readahead_bytes(const std::string& path);

}  // namespace evenkeel

#pragma GCC visibility pop
