// The interface to the kernel. Every system call that reads data or prepares reading goes through
// here, so that tests can make each of them fail (fault_hook.h). These are thin wrappers: same
// arguments, same errno.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace evenkeel::sys {

int open(const char* path, int flags);
int close(int fd);
int fstat(int fd, struct stat* out);
int lstat(const char* path, struct stat* out);
DIR* opendir(const char* path);
dirent* readdir(DIR* folder);  // at the end: nullptr and errno 0
ssize_t pread(int fd, void* buffer, std::size_t length, std::uint64_t offset);
// preadv2 with one buffer; flags as RWF_*.
ssize_t pread_flags(int fd, void* buffer, std::size_t length, std::uint64_t offset, int flags);
// read(2), for small files in /proc and /sys.
ssize_t read_text(int fd, void* buffer, std::size_t length);
void* mmap(void* address, std::size_t length, int protection, int flags, int fd,
           std::uint64_t offset);
int munmap(void* address, std::size_t length);
int madvise(void* address, std::size_t length, int advice);
int mincore(void* address, std::size_t length, unsigned char* pages);
// Copies from a mapping of this process (process_vm_readv). If touching the mapping would raise
// SIGBUS, it fails with EFAULT.
ssize_t copy_mapped(void* to, const void* from, std::size_t length);
// posix_fadvise, but it reports errors like the others: -1 and errno.
int fadvise(int fd, std::uint64_t offset, std::uint64_t length, int advice);
int sync_file_range(int fd, std::uint64_t offset, std::uint64_t length, unsigned flags);

// For writers (src/write).
int create(const char* path, int flags, mode_t mode);  // open(2) with O_CREAT
ssize_t pwrite(int fd, const void* buffer, std::size_t length, std::uint64_t offset);
int fallocate(int fd, int mode, std::uint64_t offset, std::uint64_t length);
int ftruncate(int fd, std::uint64_t length);
int fsync(int fd);
int rename(const char* from, const char* to);
int unlink(const char* path);

struct CacheStat {  // in pages; the layout of the kernel's struct cachestat
  std::uint64_t cached, dirty, writeback, evicted, recently_evicted;
};
// cachestat(2), since Linux 6.5. Length 0 means to the end of the file.
int cachestat(int fd, std::uint64_t offset, std::uint64_t length, CacheStat* out);

// The alignment that O_DIRECT requires for this file, from statx(STATX_DIOALIGN); zeros if the
// kernel does not report it.
struct DirectAlignment {
  std::uint32_t memory = 0, offset = 0;
};
DirectAlignment direct_alignment(int fd);

std::uint64_t page_size();
std::int64_t monotonic_ns();

}  // namespace evenkeel::sys
