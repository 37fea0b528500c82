// The functions that the hooks replace: the next definition of each name, in the C library or in
// another preloaded library. If there is none, and during the search (which may allocate, and
// allocators map memory), the system call is made directly. errno is as the call left it.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace evenkeel::preload::real {

// Looks up all functions. Called when the library is loaded, so that no hook has to.
void find_all();

void* mmap(void* at, std::size_t length, int protection, int flags, int fd, off_t offset);
void* mremap(void* from, std::size_t length, std::size_t new_length, int flags, void* to);
int munmap(void* at, std::size_t length);
int mprotect(void* at, std::size_t length, int protection);
int pkey_mprotect(void* at, std::size_t length, int protection, int key);
int madvise(void* at, std::size_t length, int advice);
int posix_madvise(void* at, std::size_t length, int advice);  // returns an errno
int remap_file_pages(void* at, std::size_t length, int protection, std::size_t page, int flags);
void* shmat(int id, const void* at, int flags);
int umount(const char* target);
int umount2(const char* target, int flags);
int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);
int unshare(int flags);
int setns(int fd, int type);
pid_t fork();

}  // namespace evenkeel::preload::real
