// How this process reaches the shared table: opens it, claims an entry for itself, registers files.
#pragma once

#include "process_guard/shared_table_layout.h"

namespace evenkeel::preload {

// Of a file that is mapped.
struct FileFacts {
  std::uint64_t device = 0, inode = 0, born = 0;
  bool regular = false;
};

// By statx, or fstat where there is none. False when the kernel refuses.
bool file_facts(int fd, FileFacts& out);

// Whether the file lies on hugetlbfs: such files are not registered.
bool has_huge_pages(int fd);

// Keeps what the environment says, before the program changes it. Not in secure mode (setuid and
// the like), where the environment is a stranger's.
void remember_environment();

// Null when there is none, or it is not of this version. Then a line has been printed, unless the
// environment names no table.
shared_table::SharedTable* open_shared_table();

// This process in the table: an entry, and the array of its mappings.
struct Registration {
  shared_table::Process* process = nullptr;
  shared_table::Mapping* mappings = nullptr;
};
// An entry of its own for this process, without mappings. An old one under the same number is from
// before exec, or of a process that has ended. Empty when there is no room, or the array cannot be
// mapped; then the process is counted as lost.
Registration register_process(shared_table::SharedTable& table);
// Unmaps the array, in the child of a fork: it is the parent's.
void forget_registration(const Registration& registration);

// An entry for a file. `generation` tells whether it still is this file's.
struct FileEntry {
  std::uint32_t index = shared_table::kFiles;  // kFiles: there was no room
  std::uint32_t generation = 0;
  bool valid() const { return index != shared_table::kFiles; }
};
// The entry of the file; it is filled when the file is new.
FileEntry register_file(shared_table::SharedTable& table, const FileFacts& facts, const char* path,
                        std::uint64_t path_length);
// After a mapping that refers to the entry was published. False: the tool has given the entry to
// others in the meantime.
bool is_current(shared_table::SharedTable& table, const FileEntry& entry);

// Wakes the tool: something has changed.
void notify_tool(shared_table::SharedTable& table);

// Filters of this thread, by /proc; 0 where the kernel does not say (before Linux 5.9).
std::uint32_t seccomp_filters();

// As the /proc of this process numbers it; 0 when it does not say.
std::uint32_t own_process_number();
std::uint32_t own_thread_number();

}  // namespace evenkeel::preload
