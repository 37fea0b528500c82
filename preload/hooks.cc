// The functions that replace those of the C library in every program under `evenkeel guard`. They
// call the original functions and keep the registered mappings up to date.
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/shm.h>

#include <cstdarg>

#include "preload/agent.h"
#include "preload/real_calls.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

using evenkeel::preload::agent;
using evenkeel::preload::KeepErrno;
using evenkeel::preload::page_size;
using evenkeel::preload::Range;
namespace shared_table = evenkeel::shared_table;
namespace real = evenkeel::preload::real;

namespace {

std::uint64_t number(const void* at) { return reinterpret_cast<std::uint64_t>(at); }

// The pages of a range, clipped to the address space.
Range pages(const void* at, std::size_t length) {
  const std::uint64_t mask = page_size() - 1, begin = number(at) & ~mask;
  const std::uint64_t end = number(at) + length + mask;
  return {begin, end < begin ? ~std::uint64_t{0} : end & ~mask};
}

// Takes the mappings of a range out of the table before a call, and puts them back if it failed.
class Withdrawn {
 public:
  explicit Withdrawn(Range range) {
    const KeepErrno keep;
    taken_ = agent.take(range);
  }
  void settle(bool gone) {
    const KeepErrno keep;
    agent.settle(taken_, gone);
  }
  std::uint32_t taken() const { return taken_; }

 private:
  std::uint32_t taken_;
};

void* map(void* at, std::size_t length, int protection, int flags, int fd, off_t offset) {
  const bool replaces = (flags & MAP_FIXED) != 0;
  Withdrawn before(replaces ? pages(at, length) : Range{});
  void* result = real::mmap(at, length, protection, flags, fd, offset);
  before.settle(result != MAP_FAILED);
  if (result != MAP_FAILED) {
    agent.mapped({pages(result, length), protection, flags, (flags & MAP_ANONYMOUS) != 0 ? -1 : fd,
                  static_cast<std::uint64_t>(offset)});
  }
  return result;
}

// Executable memory is not registered. Writable memory is noted before the first byte can be
// written, because it decides how pages may be released.
template <class Call>
int protect(void* at, std::size_t length, int protection, const Call& call) {
  const Range range = pages(at, length);
  if ((protection & PROT_WRITE) != 0) {
    const KeepErrno keep;
    agent.note(range, shared_table::kWritable);
  }
  if ((protection & PROT_EXEC) == 0) return call();
  Withdrawn before(range);
  const int result = call();
  before.settle(result == 0);
  return result;
}

void note_advice(void* at, std::size_t length, int advice) {
  const bool how = advice == MADV_NORMAL || advice == MADV_RANDOM || advice == MADV_SEQUENTIAL;
  const KeepErrno keep;
  if (how) agent.note(pages(at, length), shared_table::kAdvised);
}

// The tool keeps descriptors of the files it guards, and closes them shortly after the last unmap.
// They must not prevent a file system from being unmounted.
template <class Call>
int unmount(const Call& call) {
  int result = call();
  // Try several times: the tool also opens files for a moment to count their pages.
  for (int i = 0; i < 5 && result != 0 && errno == EBUSY; ++i) {
    if (!agent.ask_tool_to_close_files()) break;
    result = call();
  }
  return result;
}

// A process with several threads cannot enter a user or time namespace, nor the mount namespace of
// another process. The thread of this library must not be the reason.
template <class Call>
int enter_namespace(const Call& call) {
  const int result = call();
  const bool refused = result != 0 && (errno == EINVAL || errno == EUSERS);
  if (!refused || !agent.has_only_other_thread()) return result;
  agent.leave();
  return call();
}

[[gnu::constructor]] void begin() {
  real::find_all();
  evenkeel::preload::remember_environment();
}

}  // namespace

#define HOOK extern "C" [[gnu::visibility("default")]]

HOOK void* mmap(void* at, std::size_t length, int protection, int flags, int fd,
                off_t offset) noexcept {
  return map(at, length, protection, flags, fd, offset);
}

HOOK void* mmap64(void* at, std::size_t length, int protection, int flags, int fd,
                  off_t offset) noexcept {
  return map(at, length, protection, flags, fd, offset);
}

HOOK int munmap(void* at, std::size_t length) noexcept {
  Withdrawn before(pages(at, length));
  const int result = real::munmap(at, length);
  before.settle(result == 0);
  return result;
}

HOOK void* mremap(void* from, std::size_t length, std::size_t new_length, int flags, ...) noexcept {
  void* to = nullptr;
  if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0) {
    va_list rest;
    va_start(rest, flags);
    to = va_arg(rest, void*);
    va_end(rest);
  }
  const Range old = pages(from, length);
  Withdrawn target((flags & MREMAP_FIXED) != 0 ? pages(to, new_length) : Range{});
  Withdrawn source(length == 0 ? Range{} : old);
  void* result = real::mremap(from, length, new_length, flags, to);
  const bool done = result != MAP_FAILED;
  target.settle(done);
  if (!done) {
    source.settle(false);
    return result;
  }
  const KeepErrno keep;
  const Range now = pages(result, new_length);
  if (length == 0) {
    agent.doubled(number(from), now);
  } else {
    agent.moved(source.taken(), old, now, (flags & MREMAP_DONTUNMAP) != 0);
  }
  return result;
}

HOOK int mprotect(void* at, std::size_t length, int protection) noexcept {
  return protect(at, length, protection, [&] { return real::mprotect(at, length, protection); });
}

HOOK int pkey_mprotect(void* at, std::size_t length, int protection, int key) noexcept {
  return protect(at, length, protection,
                 [&] { return real::pkey_mprotect(at, length, protection, key); });
}

HOOK int madvise(void* at, std::size_t length, int advice) noexcept {
  note_advice(at, length, advice);
  return real::madvise(at, length, advice);
}

HOOK int posix_madvise(void* at, std::size_t length, int advice) noexcept {
  note_advice(at, length, advice);
  return real::posix_madvise(at, length, advice);
}

HOOK int remap_file_pages(void* at, std::size_t length, int protection, std::size_t page,
                          int flags) noexcept {
  Withdrawn before(pages(at, length));
  const int result = real::remap_file_pages(at, length, protection, page, flags);
  before.settle(result == 0);
  return result;
}

HOOK void* shmat(int id, const void* at, int flags) noexcept {
  if ((flags & SHM_REMAP) == 0) return real::shmat(id, at, flags);
  shmid_ds segment{};
  const bool known =
      evenkeel::preload::raw(SYS_shmctl, id, IPC_STAT, &segment) == 0 && segment.shm_segsz != 0;
  // A segment of unknown length may end anywhere.
  Withdrawn before(known ? pages(at, segment.shm_segsz) : Range{number(at), ~std::uint64_t{0}});
  void* result = real::shmat(id, at, flags);
  before.settle(number(result) != ~std::uint64_t{0});
  return result;
}

HOOK int umount(const char* target) noexcept {
  return unmount([&] { return real::umount(target); });
}

HOOK int umount2(const char* target, int flags) noexcept {
  return unmount([&] { return real::umount2(target, flags); });
}

// Seccomp filters are installed by PR_SET_SECCOMP, or by the system call seccomp. For the latter,
// an unprivileged process needs PR_SET_NO_NEW_PRIVS first.
HOOK int prctl(int option, ...) noexcept {
  unsigned long values[4];
  va_list rest;
  va_start(rest, option);
  for (unsigned long& value : values) value = va_arg(rest, unsigned long);
  va_end(rest);
  if (option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS) agent.leave();
  return real::prctl(option, values[0], values[1], values[2], values[3]);
}

HOOK int unshare(int flags) noexcept {
  constexpr int kForOneThread = CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM;
  if ((flags & kForOneThread) == 0) return real::unshare(flags);
  return enter_namespace([&] { return real::unshare(flags); });
}

HOOK int setns(int fd, int type) noexcept {
  return enter_namespace([&] { return real::setns(fd, type); });
}

HOOK pid_t fork() noexcept {
  const pid_t pid = real::fork();
  if (pid == 0) agent.forked();
  return pid;
}
