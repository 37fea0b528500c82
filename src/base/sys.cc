#include "base/sys.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <type_traits>

#include "base/fault_hook.h"

namespace evenkeel::sys {

std::atomic<FaultHook*> fault_hook = nullptr;

namespace {

// Does what the hook says: returns `refused` with errno set, or makes the call. A short read is
// made at full length and then reported as shorter, because O_DIRECT rejects unaligned lengths.
template <class Result, class Real, class... Values>
[[gnu::cold, gnu::noinline]] Result as_hooked(Call call, Result refused, Real real,
                                              Values... values) {
  const Fault fault = fault_of(call);
  if (fault.error != 0) {
    errno = fault.error;
    return refused;
  }
  const Result result = real(values...);
  if constexpr (std::is_same_v<Result, ssize_t>) {
    if (result < 0) return result;
    return static_cast<ssize_t>(std::min(static_cast<std::size_t>(result), fault.at_most));
  }
  return result;
}

// Without a hook, this costs a load and a branch. Arguments are passed by value and `real` has no
// captures, so that the fast path stores nothing to memory for the slow one.
template <class Result, class Real, class... Values>
Result call_unless(Call call, Result refused, Real real, Values... values) {
  if (!fault_hook.load(std::memory_order_relaxed)) [[likely]]
    return real(values...);
  return as_hooked(call, refused, real, values...);
}

constexpr ssize_t kNoBytes = -1;

// For close and munmap: the real call is made first, then the injected fault is reported. Otherwise
// a test that makes close() fail would leak the descriptor.
int done_but(int result, Call call) {
  return call_unless(
      call, -1, [](int same) { return same; }, result);
}

}  // namespace

int open(const char* path, int flags) {
  const auto real = [](const char* name, int all) { return ::open(name, all); };
  return call_unless(Call::kOpen, -1, real, path, flags | O_CLOEXEC);
}
int close(int fd) { return done_but(::close(fd), Call::kClose); }
int fstat(int fd, struct stat* out) { return call_unless(Call::kFstat, -1, &::fstat, fd, out); }
int lstat(const char* path, struct stat* out) {
  return call_unless(Call::kLstat, -1, &::lstat, path, out);
}
DIR* opendir(const char* path) {
  return call_unless<DIR*>(Call::kReadFolder, nullptr, &::opendir, path);
}
dirent* readdir(DIR* folder) {
  errno = 0;
  return call_unless<dirent*>(Call::kReadFolder, nullptr, &::readdir, folder);
}

ssize_t pread(int fd, void* buffer, std::size_t length, std::uint64_t offset) {
  return call_unless(Call::kPread, kNoBytes, &::pread, fd, buffer, length,
                     static_cast<off_t>(offset));
}

ssize_t pread_flags(int fd, void* buffer, std::size_t length, std::uint64_t offset, int flags) {
  const auto real = [](int file, void* to, std::size_t bytes, std::uint64_t at, int how) {
    const iovec one{to, bytes};
    return ::preadv2(file, &one, 1, static_cast<off_t>(at), how);
  };
  return call_unless(Call::kPreadFlags, kNoBytes, real, fd, buffer, length, offset, flags);
}

ssize_t read_text(int fd, void* buffer, std::size_t length) {
  const Fault fault = fault_of(Call::kReadText);
  if (fault.error != 0) {
    errno = fault.error;
    return -1;
  }
  return ::read(fd, buffer, std::min(length, fault.at_most));  // the next call reads the rest
}

void* mmap(void* address, std::size_t length, int protection, int flags, int fd,
           std::uint64_t offset) {
  return call_unless(Call::kMmap, MAP_FAILED, &::mmap, address, length, protection, flags, fd,
                     static_cast<off_t>(offset));
}
int munmap(void* address, std::size_t length) {
  return done_but(::munmap(address, length), Call::kMunmap);
}
int madvise(void* address, std::size_t length, int advice) {
  return call_unless(Call::kMadvise, -1, &::madvise, address, length, advice);
}

int mincore(void* address, std::size_t length, unsigned char* pages) {
  return call_unless(Call::kMincore, -1, &::mincore, address, length, pages);
}

ssize_t copy_mapped(void* to, const void* from, std::size_t length) {
  const auto real = [](void* target, const void* source, std::size_t bytes) {
    const iovec local{target, bytes};
    const iovec remote{const_cast<void*>(source), bytes};
    return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0);
  };
  return call_unless(Call::kCopyMapped, kNoBytes, real, to, from, length);
}

int fadvise(int fd, std::uint64_t offset, std::uint64_t length, int advice) {
  const auto real = [](int file, off_t begin, off_t bytes, int what) {
    const int code = ::posix_fadvise(file, begin, bytes, what);
    if (code != 0) errno = code;
    return code == 0 ? 0 : -1;
  };
  return call_unless(Call::kFadvise, -1, real, fd, static_cast<off_t>(offset),
                     static_cast<off_t>(length), advice);
}

int sync_file_range(int fd, std::uint64_t offset, std::uint64_t length, unsigned flags) {
  return call_unless(Call::kSyncRange, -1, &::sync_file_range, fd, static_cast<off_t>(offset),
                     static_cast<off_t>(length), flags);
}

int create(const char* path, int flags, mode_t mode) {
  const auto real = [](const char* name, int all, mode_t bits) { return ::open(name, all, bits); };
  return call_unless(Call::kCreate, -1, real, path, flags | O_CREAT | O_CLOEXEC, mode);
}

ssize_t pwrite(int fd, const void* buffer, std::size_t length, std::uint64_t offset) {
  return call_unless(Call::kPwrite, kNoBytes, &::pwrite, fd, buffer, length,
                     static_cast<off_t>(offset));
}

int fallocate(int fd, int mode, std::uint64_t offset, std::uint64_t length) {
  return call_unless(Call::kFallocate, -1, &::fallocate, fd, mode, static_cast<off_t>(offset),
                     static_cast<off_t>(length));
}

int ftruncate(int fd, std::uint64_t length) {
  return call_unless(Call::kFtruncate, -1, &::ftruncate, fd, static_cast<off_t>(length));
}
int fsync(int fd) { return call_unless(Call::kFsync, -1, &::fsync, fd); }
int rename(const char* from, const char* to) {
  return call_unless(Call::kRename, -1, &::rename, from, to);
}
int unlink(const char* path) { return call_unless(Call::kUnlink, -1, &::unlink, path); }

int cachestat(int fd, std::uint64_t offset, std::uint64_t length, CacheStat* out) {
  const auto real = [](int file, std::uint64_t begin, std::uint64_t bytes, CacheStat* answer) {
    constexpr long kCachestat = 451;  // the same on every architecture but alpha
    struct Range {
      std::uint64_t offset, length;
    } range{begin, bytes};
    return static_cast<int>(::syscall(kCachestat, file, &range, answer, 0));
  };
  return call_unless(Call::kCachestat, -1, real, fd, offset, length, out);
}

DirectAlignment direct_alignment(int fd) {
#ifdef STATX_DIOALIGN
  constexpr unsigned kWanted = STATX_DIOALIGN;
#else
  constexpr unsigned kWanted = 0x2000;  // Linux 6.1; older headers lack the name
#endif
  if (injected_error(Call::kDirectAlignment) != 0) return {};
  // A raw buffer: struct statx of an older libc lacks the two fields (at bytes 152 and 156).
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
