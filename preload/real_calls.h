// The functions behind the hooks: the next of that name, which is the C library's, or another
// preloaded library's. Where it cannot be found, and while it is being looked for (the search may
// allocate, and allocators map), the kernel is called directly. errno is as the call left it.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace evenkeel::preload::real {

// Looks for all of them: when the library is loaded, so that no hook has to.
void find_all();

void* mmap(void* at, std::size_t length, int protection, int flags, int fd, off_t offset);
void* mremap(void* from, std::size_t length, std::size_t new_length, int flags, void* to);
int munmap(void* at, std::size_t length);
int mprotect(void* at, std::size_t length, int protection);
int pkey_mprotect(void* at, std::size_t length, int protection, int key);
int madvise(void* at, std::size_t length, int advice);
int posix_madvise(void* at, std::size_t length, int advice);  // an errno
int remap_file_pages(void* at, std::size_t length, int protection, std::size_t page, int flags);
void* shmat(int id, const void* at, int flags);
int umount(const char* target);
int umount2(const char* target, int flags);
int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);
pid_t fork();

}  // namespace evenkeel::preload::real
