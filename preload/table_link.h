// This process on the board: where the board is, its slot there, and the slots of files.
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

// Whether it is of huge pages, or nothing that a name leads to: those are not told of.
bool has_huge_pages(int fd);

// What the environment says, remembered before the program changes it. Not in secure mode (setuid
// and the like), where the environment is a stranger's.
void remember_environment();

// Null when there is none, or it is not of this version: then a line has been said, unless the
// environment has nothing of a board.
shared_table::SharedTable* open_board();

// A slot of its own for this process, empty; null when there is none free. An old one under the
// same number is from before exec, or of a process that has ended.
shared_table::Process* claim_process(shared_table::SharedTable& board);

// The slot of the file; its path is put there when it is new. kFiles when there is no room.
std::uint32_t file_slot(shared_table::SharedTable& board, const FileFacts& facts, const char* path,
                        std::uint64_t path_length);

// Tells the tool that something has changed.
void ring(shared_table::SharedTable& board);

// As the /proc of this process numbers it; 0 when it does not say.
std::uint32_t own_process_number();
std::uint32_t own_thread_number();

}  // namespace evenkeel::preload
