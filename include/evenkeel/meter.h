// What the kernel knows about memory: of a process, of a tree of processes, of a file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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

// Of `pid`, or of this process for 0. Throws Error (kSystem) when there is no such process.
ProcessMemory process_memory(pid_t pid = 0);

// Bytes that the storage delivered to this process so far (/proc/PID/io read_bytes), O_DIRECT
// included; empty where the kernel does not tell.
std::optional<std::uint64_t> disk_bytes_read(pid_t pid = 0);

// What a process has done so far, from /proc/PID/stat and /proc/PID/io.
struct ProcessCounters {
  std::uint64_t major_faults = 0;  // page faults that waited for storage
  std::uint64_t minor_faults = 0;  // those that did not
  double cpu_seconds = 0;          // user and system, in steps of the kernel's tick (mostly 10 ms)
  // Bytes that storage delivered. The kernel adds those of children that the process has waited
  // for. Empty where it does not tell: for processes of other users.
  std::optional<std::uint64_t> disk_read;
};

// Of `pid`, or of this process for 0. Throws Error (kSystem, ESRCH) when there is no such process.
ProcessCounters process_counters(pid_t pid = 0);

// Proportional set size in bytes: each page divided by the number of processes that map it, so that
// it adds up. The kernel walks all pages for it: 10 to 15 ms for each GiB. Empty where it is not
// permitted, and for a process that has ended.
std::optional<std::uint64_t> process_pss(pid_t pid = 0);

// What a process and its descendants hold and have done.
struct TreeMemory {
  ProcessMemory memory;      // sums; pages that several map count for each. peak_rss is 0: peaks of
                             // different moments have no sum
  ProcessCounters counters;  // since the tree was made; see ProcessTree
  std::uint32_t processes = 0;   // living ones
  std::uint32_t unmeasured = 0;  // at least as many could not be opened: too few descriptors
};

// Follows a process and all its descendants; those whose parent has ended, too, once they were
// seen. A descendant that comes and goes between two samples, or loses its parent before it is
// seen, is missed; what it did is in the counters if a parent in the tree waited for it.
//
// Counters count from the making of the tree, over all processes, ended ones included: these with
// what their parent inherited, or with the last that was seen. They never decrease.
//
// Holds four descriptors a process. A sample of one process takes about 15 us; new children are
// looked for when the system has made a new process or thread, and at most 0.3 % of the time.
// Not for several threads at once.
class ProcessTree {
 public:
  // 0 is this process. Throws Error (kSystem, ESRCH) when there is no such process.
  explicit ProcessTree(pid_t root);
  ProcessTree(ProcessTree&&) noexcept;
  ProcessTree& operator=(ProcessTree&&) noexcept;
  ~ProcessTree();

  // Empty once the root and all descendants that were seen have ended. A zombie has.
  std::optional<TreeMemory> sample();
  // Resident memory alone, for the looks in between: cheaper than sample(). Counters, page
  // tables and swap stay as they are; so does RssShmem, what has changed of it counting as RssFile;
  // that a process has ended is noticed by the next sample(), only its memory counts no more.
  ProcessMemory sample_resident();
  // As of the last sample: after an empty one, the final counts.
  ProcessCounters counters() const;
  // Living ones as of the last sample, parents before their children.
  std::vector<pid_t> processes() const;
  // The sum of process_pss. Walks all pages: it costs what process_pss does, for each process.
  // Empty where one of them is not permitted.
  std::optional<std::uint64_t> pss();
  // Memory as of the last sample, with pages that several processes map counted once: after fork,
  // or when several map one file. Exact at the last pss(); between two, a forked child counts from
  // what it adds, and pages that several may have mapped since count once. Before the first, and
  // where the kernel does not tell PSS by kind (before 5.4), the sums of sample().
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
// reading, or maps, nowhere with execute permission (so no programs and libraries). Each once;
// without those that have lost their name, memfds, and what lies in /dev, /proc and /sys. Empty
// where it is not permitted, and for a process that has ended.
std::vector<FileInUse> files_in_use(pid_t pid, std::uint64_t least_size);

struct FileCache {
  std::uint64_t cached = 0;   // bytes of the file in the page cache
  std::uint64_t dirty = 0;    // of these, not yet written
  std::uint64_t evicted = 0;  // bytes that were in the cache and were pushed out
  std::string source;         // "cachestat" or "mincore" (which knows `cached` alone)
};

// Empty when the kernel will not tell: cachestat needs Linux 6.5 and a file the caller owns or may
// write; mincore needs the same ownership. Throws Error (kSystem) when the file cannot be opened.
std::optional<FileCache> file_cache(const std::string& path);

// Drops the clean pages of a file from the page cache: fsync, then POSIX_FADV_DONTNEED. Returns the
// bytes still cached (pages that someone has mapped stay), or empty when the kernel will not tell.
std::optional<std::uint64_t> drop_file_cache(const std::string& path);

// Readahead of the device a file lies on, in bytes; empty where sysfs does not tell.
std::optional<std::uint64_t> readahead_bytes(const std::string& path);

}  // namespace evenkeel
