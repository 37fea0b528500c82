// Switches the readahead of guarded files by how they are read.
#pragma once

#include <chrono>
#include <cstdint>

#include "guard/access.h"
#include "guard/activity.h"
#include "guard/guarded_file.h"
#include "guard/thresholds.h"

namespace evenkeel {

// Judges by what happened since a starting point: the major faults of the process, and the pages
// that came into the page cache. One thread at a time.
class AccessJudge {
 public:
  // Starts a new period. `fetched`: bytes read into the page cache of counted files until now.
  void start(const Activity& activity, std::uint64_t fetched);
  // The same, when few faults came in the last second: they are too old to judge by.
  void forget_old(const Activity& activity, std::uint64_t fetched);

  bool any_faults(const Activity& activity) const {
    return activity.major_faults != start_.major_faults;
  }
  bool enough_faults(const Activity& activity) const;
  Seconds since_start() const { return Clock::now() - started_at_; }

  // Turns readahead of a file off, or on again. True when it was switched.
  bool judge(GuardedFile& file, const Activity& activity, std::uint64_t fetched) const;

 private:
  using Clock = std::chrono::steady_clock;
  AccessSample sample_of_process(const Activity& activity) const;

  Activity start_;
  std::uint64_t fetched_at_start_ = 0;
  Clock::time_point started_at_{};
};

}  // namespace evenkeel
