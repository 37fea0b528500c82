// Implements process_counters of meter.h.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace evenkeel {

// Fields of /proc/PID/stat. The child_ members are sums over children that were waited for.
struct ProcessStat {
  char state = '?';
  pid_t parent = 0;
  std::uint64_t minor_faults = 0, child_minor_faults = 0;
  std::uint64_t major_faults = 0, child_major_faults = 0;
  std::uint64_t ticks = 0, child_ticks = 0;  // CPU time, user and system
  std::uint64_t threads = 0;

  // Whether only its exit status is left. If it has other threads, only the first one has ended.
  bool zombie() const { return (state == 'Z' || state == 'X') && threads <= 1; }
};

// The process name may contain blanks, parentheses and newlines. Empty if the text is cut short.
std::optional<ProcessStat> parse_stat(std::string_view stat);

double seconds_of_ticks(std::uint64_t ticks);

}  // namespace evenkeel
