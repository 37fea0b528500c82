#include "base/sys.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace evenkeel::sys {

int open(const char* path, int flags) { return ::open(path, flags | O_CLOEXEC); }
int close(int fd) { return ::close(fd); }
int fstat(int fd, struct stat* out) { return ::fstat(fd, out); }

ssize_t pread(int fd, void* buffer, std::size_t length, std::uint64_t offset) {
  return ::pread(fd, buffer, length, static_cast<off_t>(offset));
}

ssize_t pread_flags(int fd, void* buffer, std::size_t length, std::uint64_t offset, int flags) {
  const iovec one{buffer, length};
  return ::preadv2(fd, &one, 1, static_cast<off_t>(offset), flags);
}

void* mmap(void* address, std::size_t length, int protection, int flags, int fd,
           std::uint64_t offset) {
  return ::mmap(address, length, protection, flags, fd, static_cast<off_t>(offset));
}
int munmap(void* address, std::size_t length) { return ::munmap(address, length); }
int madvise(void* address, std::size_t length, int advice) {
  return ::madvise(address, length, advice);
}

int fadvise(int fd, std::uint64_t offset, std::uint64_t length, int advice) {
  const int code =
      ::posix_fadvise(fd, static_cast<off_t>(offset), static_cast<off_t>(length), advice);
  if (code == 0) return 0;
  errno = code;
  return -1;
}

int cachestat(int fd, std::uint64_t offset, std::uint64_t length, CacheStat* out) {
  constexpr long kCachestat = 451;  // the same on every architecture but alpha
  struct Range {
    std::uint64_t offset, length;
  } range{offset, length};
  return static_cast<int>(::syscall(kCachestat, fd, &range, out, 0));
}

DirectAlignment direct_alignment(int fd) {
#ifdef STATX_DIOALIGN
  constexpr unsigned kWanted = STATX_DIOALIGN;
#else
  constexpr unsigned kWanted = 0x2000;  // Linux 6.1; older headers lack the name
#endif
  // Laid out by hand: struct statx of an older libc lacks the two fields (at bytes 152 and 156).
  alignas(8) unsigned char answer[256] = {};
  if (::syscall(SYS_statx, fd, "", AT_EMPTY_PATH, kWanted, answer) != 0) return {};
  const auto word = [&](int at) { return *reinterpret_cast<const std::uint32_t*>(answer + at); };
  if ((word(0) & kWanted) == 0) return {};
  return {word(152), word(156)};
}

std::uint64_t page_size() {
  static const auto size = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace evenkeel::sys
