#include "base/sys.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/fault_hook.h"

namespace evenkeel::sys {

std::atomic<FaultHook*> fault_hook = nullptr;

namespace {

// Whether a test wants this call to fail; errno is then set.
bool fails(const Fault& fault) {
  if (fault.error == 0) [[likely]]
    return false;
  errno = fault.error;
  return true;
}

// Made in full and then cut: O_DIRECT would refuse the shorter length.
ssize_t cut(ssize_t got, const Fault& fault) {
  if (got <= 0 || static_cast<std::size_t>(got) <= fault.at_most) [[likely]]
    return got;
  return static_cast<ssize_t>(fault.at_most);
}

// What cannot be put off: done first, and only then said to have failed.
int done_but(int result, Call call) { return fails(fault_of(call)) ? -1 : result; }

}  // namespace

int open(const char* path, int flags) {
  return fails(fault_of(Call::kOpen)) ? -1 : ::open(path, flags | O_CLOEXEC);
}
int close(int fd) { return done_but(::close(fd), Call::kClose); }
int fstat(int fd, struct stat* out) {
  return fails(fault_of(Call::kFstat)) ? -1 : ::fstat(fd, out);
}
int lstat(const char* path, struct stat* out) {
  return fails(fault_of(Call::kLstat)) ? -1 : ::lstat(path, out);
}
DIR* opendir(const char* path) {
  return fails(fault_of(Call::kReadFolder)) ? nullptr : ::opendir(path);
}
dirent* readdir(DIR* folder) {
  errno = 0;
  return fails(fault_of(Call::kReadFolder)) ? nullptr : ::readdir(folder);
}

ssize_t pread(int fd, void* buffer, std::size_t length, std::uint64_t offset) {
  const Fault fault = fault_of(Call::kPread);
  return fails(fault) ? -1 : cut(::pread(fd, buffer, length, static_cast<off_t>(offset)), fault);
}

ssize_t pread_flags(int fd, void* buffer, std::size_t length, std::uint64_t offset, int flags) {
  const Fault fault = fault_of(Call::kPreadFlags);
  const iovec one{buffer, length};
  return fails(fault) ? -1 : cut(::preadv2(fd, &one, 1, static_cast<off_t>(offset), flags), fault);
}

ssize_t read_text(int fd, void* buffer, std::size_t length) {
  const Fault fault = fault_of(Call::kReadText);
  // Here the rest must come with the next call.
  return fails(fault) ? -1 : ::read(fd, buffer, std::min(length, fault.at_most));
}

void* mmap(void* address, std::size_t length, int protection, int flags, int fd,
           std::uint64_t offset) {
  if (fails(fault_of(Call::kMmap))) return MAP_FAILED;
  return ::mmap(address, length, protection, flags, fd, static_cast<off_t>(offset));
}
int munmap(void* address, std::size_t length) {
  return done_but(::munmap(address, length), Call::kMunmap);
}
int madvise(void* address, std::size_t length, int advice) {
  return fails(fault_of(Call::kMadvise)) ? -1 : ::madvise(address, length, advice);
}

ssize_t copy_mapped(void* to, const void* from, std::size_t length) {
  const Fault fault = fault_of(Call::kCopyMapped);
  const iovec local{to, length};
  const iovec remote{const_cast<void*>(from), length};
  return fails(fault) ? -1 : cut(::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0), fault);
}

int fadvise(int fd, std::uint64_t offset, std::uint64_t length, int advice) {
  if (fails(fault_of(Call::kFadvise))) return -1;
  const int code =
      ::posix_fadvise(fd, static_cast<off_t>(offset), static_cast<off_t>(length), advice);
  if (code == 0) return 0;
  errno = code;
  return -1;
}

int sync_file_range(int fd, std::uint64_t offset, std::uint64_t length, unsigned flags) {
  if (fails(fault_of(Call::kSyncRange))) return -1;
  return ::sync_file_range(fd, static_cast<off_t>(offset), static_cast<off_t>(length), flags);
}

int cachestat(int fd, std::uint64_t offset, std::uint64_t length, CacheStat* out) {
  if (fails(fault_of(Call::kCachestat))) return -1;
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
  if (fails(fault_of(Call::kDirectAlignment))) return {};
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

std::int64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec + fault_of(Call::kClock).clock_jump_ns;
}

}  // namespace evenkeel::sys
