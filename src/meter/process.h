// Implements process_memory and disk_bytes_read of meter.h.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/fd.h"
#include "evenkeel/meter.h"

namespace evenkeel {

// Parses /proc/PID/status. Empty if it has no resident set: a zombie or a kernel thread.
std::optional<ProcessMemory> parse_status(std::string_view status);

// The parts of the resident set.
inline constexpr std::array kResidentKinds = {&ProcessMemory::anon, &ProcessMemory::file,
                                              &ProcessMemory::shmem};

// Proportional set size, in bytes.
struct ProcessPss {
  std::uint64_t total = 0;
  std::array<std::uint64_t, kResidentKinds.size()> kinds{};  // by kResidentKinds
  bool kinds_known = false;                                  // needs Linux 5.4
  // The resident set from the same walk: the process may grow between two readings.
  std::uint64_t resident = 0, resident_anon = 0;
};
// Parses /proc/PID/smaps_rollup. Empty if it has no PSS.
std::optional<ProcessPss> parse_smaps_rollup(std::string_view rollup);
// Returns empty and sets errno if the process has ended or permission is missing.
std::optional<ProcessPss> read_pss(pid_t pid);

// Returns read_bytes from the text of /proc/PID/io.
std::optional<std::uint64_t> parse_io(std::string_view io);

// Measures one process repeatedly. Its status file stays open. Not thread-safe.
class ProcessMeter {
 public:
  // Throws Error (kSystem, ESRCH) if there is no such process.
  explicit ProcessMeter(pid_t pid);
  // Empty if the process has ended.
  std::optional<ProcessMemory> sample() const;

 private:
  Fd status_;
};

}  // namespace evenkeel
