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

// Opens for reading, O_CLOEXEC; -1 and errno.
int open_proc(pid_t pid, std::string_view name);

// Room for one file of the short kind. The longest, status, has 1.5 KiB; on machines with very many
// CPUs more, at the end, where nothing is that we read.
using ProcText = std::array<char, 8192>;

// The beginning of an open file, read anew; empty when the process has ended or it is not
// permitted.
std::string_view read_again(int fd, ProcText& text);

// The names in a folder that are numbers: processes, threads, descriptors. Empty where it cannot be
// read.
std::vector<pid_t> numbered_entries(const std::string& folder);

}  // namespace evenkeel
