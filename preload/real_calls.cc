#include "preload/real_calls.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include "preload/raw_calls.h"

// Weak, because a program with an old glibc may not load libdl.
extern "C" {
[[gnu::weak]] void* dlsym(void*, const char*) noexcept;
[[gnu::weak]] char* dlerror() noexcept;
// Another name of fork in glibc.
[[gnu::weak]] pid_t __fork() noexcept;  // NOLINT(bugprone-reserved-identifier)
}

namespace evenkeel::preload::real {
namespace {

enum : std::uint32_t { kNot, kSearching, kFound };
constinit std::atomic<std::uint32_t> search{kNot};

template <class Function>
class Real {
 public:
  constexpr Real() = default;
  Function* get() const {
    if (search.load(std::memory_order_acquire) != kFound) find_all();
    return function_.load(std::memory_order_acquire);
  }
  void find(const char* name) {
    function_.store(reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name)),
                    std::memory_order_release);
  }

 private:
  std::atomic<Function*> function_{nullptr};
};

constinit Real<void*(void*, std::size_t, int, int, int, off_t)> next_mmap;
constinit Real<void*(void*, std::size_t, std::size_t, int, ...)> next_mremap;
constinit Real<int(void*, std::size_t)> next_munmap;
constinit Real<int(void*, std::size_t, int)> next_mprotect, next_madvise, next_posix_madvise;
constinit Real<int(void*, std::size_t, int, int)> next_pkey_mprotect;
constinit Real<int(void*, std::size_t, int, std::size_t, int)> next_remap_file_pages;
constinit Real<void*(int, const void*, int)> next_shmat;
constinit Real<int(const char*)> next_umount;
constinit Real<int(const char*, int)> next_umount2;
constinit Real<int(int, ...)> next_prctl;
constinit Real<int(int)> next_unshare;
constinit Real<int(int, int)> next_setns;
constinit Real<pid_t()> next_fork;

void* address(long result) {
  return reinterpret_cast<void*>(result);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

void find_all() {
  std::uint32_t seen = kNot;
  if (!search.compare_exchange_strong(seen, kSearching)) return;
  if (&::dlsym != nullptr) {
    const KeepErrno keep;
    next_mmap.find("mmap");
    next_mremap.find("mremap");
    next_munmap.find("munmap");
    next_mprotect.find("mprotect");
    next_madvise.find("madvise");
    next_posix_madvise.find("posix_madvise");
    next_pkey_mprotect.find("pkey_mprotect");
    next_remap_file_pages.find("remap_file_pages");
    next_shmat.find("shmat");
    next_umount.find("umount");
    next_umount2.find("umount2");
    next_prctl.find("prctl");
    next_unshare.find("unshare");
    next_setns.find("setns");
    next_fork.find("fork");
    // dlsym fails for functions that this C library lacks. Clear that error, so that the program's
    // next dlerror() does not return it.
    if (&::dlerror != nullptr) static_cast<void>(::dlerror());
  }
  search.store(kFound, std::memory_order_release);
}

void* mmap(void* at, std::size_t length, int protection, int flags, int fd, off_t offset) {
  if (auto* next = next_mmap.get()) return next(at, length, protection, flags, fd, offset);
  return address(::syscall(SYS_mmap, at, length, protection, flags, fd, offset));
}

void* mremap(void* from, std::size_t length, std::size_t new_length, int flags, void* to) {
  if (auto* next = next_mremap.get()) return next(from, length, new_length, flags, to);
  return address(::syscall(SYS_mremap, from, length, new_length, flags, to));
}

int munmap(void* at, std::size_t length) {
  if (auto* next = next_munmap.get()) return next(at, length);
  return static_cast<int>(::syscall(SYS_munmap, at, length));
}

int mprotect(void* at, std::size_t length, int protection) {
  if (auto* next = next_mprotect.get()) return next(at, length, protection);
  return static_cast<int>(::syscall(SYS_mprotect, at, length, protection));
}

int pkey_mprotect(void* at, std::size_t length, int protection, int key) {
  if (auto* next = next_pkey_mprotect.get()) return next(at, length, protection, key);
  return static_cast<int>(::syscall(SYS_pkey_mprotect, at, length, protection, key));
}

int madvise(void* at, std::size_t length, int advice) {
  if (auto* next = next_madvise.get()) return next(at, length, advice);
  return static_cast<int>(::syscall(SYS_madvise, at, length, advice));
}

int posix_madvise(void* at, std::size_t length, int advice) {
  if (auto* next = next_posix_madvise.get()) return next(at, length, advice);
  if (advice == POSIX_MADV_DONTNEED) return 0;  // as in glibc and musl
  return static_cast<int>(-raw(SYS_madvise, at, length, advice));
}

int remap_file_pages(void* at, std::size_t length, int protection, std::size_t page, int flags) {
  if (auto* next = next_remap_file_pages.get()) return next(at, length, protection, page, flags);
  return static_cast<int>(::syscall(SYS_remap_file_pages, at, length, protection, page, flags));
}

void* shmat(int id, const void* at, int flags) {
  if (auto* next = next_shmat.get()) return next(id, at, flags);
  return address(::syscall(SYS_shmat, id, at, flags));
}

int umount(const char* target) {
  if (auto* next = next_umount.get()) return next(target);
  return static_cast<int>(::syscall(SYS_umount2, target, 0));
}

int umount2(const char* target, int flags) {
  if (auto* next = next_umount2.get()) return next(target, flags);
  return static_cast<int>(::syscall(SYS_umount2, target, flags));
}

int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
  if (auto* next = next_prctl.get()) return next(option, a, b, c, d);
  return static_cast<int>(::syscall(SYS_prctl, option, a, b, c, d));
}

int unshare(int flags) {
  if (auto* next = next_unshare.get()) return next(flags);
  return static_cast<int>(::syscall(SYS_unshare, flags));
}

int setns(int fd, int type) {
  if (auto* next = next_setns.get()) return next(fd, type);
  return static_cast<int>(::syscall(SYS_setns, fd, type));
}

pid_t fork() {
  if (auto* next = next_fork.get()) return next();
  if (&::__fork != nullptr) return ::__fork();
  return static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}

}  // namespace evenkeel::preload::real
