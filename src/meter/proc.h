// Files of /proc/PID.
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

// "/proc/7/stat"; pid 0 is this process.
std::string proc_path(pid_t pid, std::string_view name);

// Opens for reading with O_CLOEXEC. Returns -1 and sets errno if that fails.
int open_proc(pid_t pid, std::string_view name);

// A buffer for one of the short files. The longest, status, has 1.5 KiB, or more on machines with
// very many CPUs, but what we need is at its beginning.
using ProcText = std::array<char, 8192>;

// Reads an open file again from its beginning. Empty if the process has ended or permission is
// missing.
std::string_view read_again(int fd, ProcText& text);

// The names in a folder that are numbers: processes, threads, descriptors. Empty if it cannot be
// read.
std::vector<pid_t> numbered_entries(const std::string& folder);

}  // namespace evenkeel
