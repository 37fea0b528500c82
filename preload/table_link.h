// Connects this process to the shared table: opens it, claims an entry, registers files.
#pragma once

#include "process_guard/shared_table_layout.h"

namespace evenkeel::preload {

// Identifies a mapped file.
struct FileFacts {
  std::uint64_t device = 0, inode = 0, born = 0;
  bool regular = false;
};

// Uses statx, or fstat if the kernel lacks it. Returns false if the kernel refuses.
bool file_facts(int fd, FileFacts& out);

// Whether the file is on hugetlbfs. Such files are not registered.
bool has_huge_pages(int fd);

// Copies the environment variable before the program changes it. Does nothing in secure mode (for
// example setuid), where the environment cannot be trusted.
void remember_environment();

// Returns null if there is no table or it has another version. Then it prints a message, unless the
// variable is not set.
shared_table::SharedTable* open_shared_table();

// This process in the table: an entry, and the array of its mappings.
struct Registration {
  shared_table::Process* process = nullptr;
  shared_table::Mapping* mappings = nullptr;
};
// Claims an entry without mappings for this process. An old entry with the same PID is from before
// exec or from a process that has ended, and is taken over. Empty if there is no room or the array
// cannot be mapped; then the process is counted as lost.
Registration register_process(shared_table::SharedTable& table);
// Unmaps the array. The entry stays: in a child of fork it belongs to the parent.
void forget_registration(const Registration& registration);

// An entry for a file. If its generation has changed, it belongs to another file.
struct FileEntry {
  std::uint32_t index = shared_table::kFiles;  // kFiles: there was no room
  std::uint32_t generation = 0;
  bool valid() const { return index != shared_table::kFiles; }
};
// Returns the entry of the file with this path. Fills one if there is none: the tool opens files by
// their paths, so a file that was renamed, or has several names, has several entries. If there is
// no room for another name, returns the entry with an earlier one.
FileEntry register_file(shared_table::SharedTable& table, const FileFacts& facts, const char* path,
                        std::uint64_t path_length);
// Call it after publishing a mapping that refers to the entry. Returns false if the tool has
// retired the entry in the meantime.
bool is_current(shared_table::SharedTable& table, const FileEntry& entry);

// Wakes the tool after a change.
void notify_tool(shared_table::SharedTable& table);

// The number of filters of this thread; 0 if the kernel does not report it (before Linux 5.9).
std::uint32_t seccomp_filters();

// The IDs in the /proc of this process; 0 if it cannot be read.
std::uint32_t own_process_number();
std::uint32_t own_thread_number();

}  // namespace evenkeel::preload
