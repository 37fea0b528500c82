// What the kernel knows about memory: of a process, of a file, of a cgroup.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

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
