// Who the children of a process are, and when it is time to ask again.
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

// Asked of the kernel (/proc/PID/task/TID/children) or, where it was built without that, found by
// going through all processes. All files are looked for below `root`, so that tests can bring a
// tree of their own.
class Children {
 public:
  enum class Way { kAsk, kScan };
  static Way best_way(const std::string& root = "");

  explicit Children(Way way = best_way(), std::string root = "");
  // Before a round of questions: what `of` answers is as of now, or later.
  void refresh();
  std::vector<pid_t> of(pid_t pid) const;

 private:
  const Way way_;
  const std::string proc_;
  std::unordered_map<pid_t, std::vector<pid_t>> scanned_;  // by parent
};

// The process or thread made last, from the text of /proc/loadavg.
std::optional<std::uint64_t> parse_newest_pid(std::string_view loadavg);

// Looking costs about 5 us for each thread of each process, so it is done only when something was
// made since the last look, or that look was a second ago (a virtual loadavg may not tell), and
// never for more than a part in kPart of the time.
class LookTimer {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kPart = 300;
  static constexpr std::chrono::seconds kAtLeastEvery{1};

  explicit LookTimer(const std::string& root = "");
  bool due(Clock::time_point now);  // true: look now, then say `looked`
  void looked(Clock::time_point began, Clock::time_point ended);

 private:
  const Fd loadavg_;
  std::optional<std::uint64_t> newest_;  // when it was last due
  Clock::time_point not_before_ = Clock::time_point::min();
  Clock::time_point regular_ = Clock::time_point::min();
};

}  // namespace evenkeel
