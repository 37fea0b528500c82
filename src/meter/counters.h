// Behind process_counters of meter.h.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace evenkeel {

// From the text of /proc/PID/stat. What children that were waited for have done stands beside the
// process's own.
struct ProcessStat {
  char state = '?';
  pid_t parent = 0;
  std::uint64_t minor_faults = 0, child_minor_faults = 0;
  std::uint64_t major_faults = 0, child_major_faults = 0;
  std::uint64_t ticks = 0, child_ticks = 0;  // CPU time, user and system
  std::uint64_t threads = 0;

  // Has nothing left but its exit status. With other threads, only the first one has ended.
  bool zombie() const { return (state == 'Z' || state == 'X') && threads <= 1; }
};

// The name in it may have blanks, parentheses and newlines. Empty for a text that is cut short.
std::optional<ProcessStat> parse_stat(std::string_view stat);

double seconds_of_ticks(std::uint64_t ticks);

}  // namespace evenkeel
