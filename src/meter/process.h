// Behind process_memory and disk_bytes_read of meter.h.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/fd.h"
#include "evenkeel/meter.h"

namespace evenkeel {

// From the text of /proc/PID/status. Empty when no resident set is told: a zombie, a kernel thread.
std::optional<ProcessMemory> parse_status(std::string_view status);

// What the resident set consists of.
inline constexpr std::array kResidentKinds = {&ProcessMemory::anon, &ProcessMemory::file,
                                              &ProcessMemory::shmem};

// Proportional set size, in bytes.
struct ProcessPss {
  std::uint64_t total = 0;
  std::array<std::uint64_t, kResidentKinds.size()> kinds{};  // of kResidentKinds
  bool kinds_told = false;                                   // Linux 5.4 or later
  // The resident set as the same walk found it: the process may grow between two readings.
  std::uint64_t resident = 0, resident_anon = 0;
};
// From the text of /proc/PID/smaps_rollup. Empty when it tells no PSS.
std::optional<ProcessPss> parse_smaps_rollup(std::string_view rollup);
// Of a process; empty, with errno, when it has ended or it is not permitted.
std::optional<ProcessPss> read_pss(pid_t pid);

// From the text of /proc/PID/io.
std::optional<std::uint64_t> parse_io(std::string_view io);

// One process, looked at again and again: its status file stays open. One thread at a time.
class ProcessMeter {
 public:
  // Throws Error (kSystem, ESRCH) when there is no such process.
  explicit ProcessMeter(pid_t pid);
  // Empty when the process has ended.
  std::optional<ProcessMemory> sample() const;

 private:
  Fd status_;
};

}  // namespace evenkeel
