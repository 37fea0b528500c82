// Finds the children of a process, and decides when to look for them again.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/fd.h"

namespace evenkeel {

// Reads /proc/PID/task/TID/children (kAsk), or, if the kernel was built without it, the parent of
// every process (kScan). All files are below `root`, so that tests can use their own tree.
class Children {
 public:
  enum class Way { kAsk, kScan };
  static Way best_way(const std::string& root = "");

  explicit Children(Way way = best_way(), std::string root = "");
  // Call it before a series of calls of of(), which then return the children as of now or later.
  void refresh();
  std::vector<pid_t> of(pid_t pid) const;

 private:
  const Way way_;
  const std::string proc_;
  std::unordered_map<pid_t, std::vector<pid_t>> scanned_;  // by parent
};

// The ID of the newest process or thread, from the text of /proc/loadavg.
std::optional<std::uint64_t> parse_newest_pid(std::string_view loadavg);

// Decides when to look for children. A look costs about 5 us for each thread of each process. So it
// is due only if a process or thread was created since the last look, or if that look was a second
// ago (a container's loadavg may not show it). Looks take at most 1/kPart of the time.
class LookTimer {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kPart = 300;
  static constexpr std::chrono::seconds kAtLeastEvery{1};

  explicit LookTimer(const std::string& root = "");
  bool due(Clock::time_point now);  // if true, look now, then call looked()
  void looked(Clock::time_point began, Clock::time_point ended);

 private:
  const Fd loadavg_;
  std::optional<std::uint64_t> newest_;  // when a look was last due
  Clock::time_point not_before_ = Clock::time_point::min();
  Clock::time_point regular_ = Clock::time_point::min();
};

}  // namespace evenkeel
