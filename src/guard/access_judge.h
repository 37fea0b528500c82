// Turns readahead of guarded files off or on, depending on how they are read.
#pragma once

#include <chrono>
#include <cstdint>

#include "guard/access.h"
#include "guard/activity.h"
#include "guard/guarded_file.h"
#include "guard/thresholds.h"

namespace evenkeel {

// Judges by what happened since the period started: the major faults of the process, and the pages
// that came into the page cache. Not thread-safe.
class AccessJudge {
 public:
  // Starts a new period. `fetched`: bytes read into the page cache of counted files so far.
  void start(const Activity& activity, std::uint64_t fetched);
  // Starts a new period if the current one is over a second old and had too few faults to judge by.
  void forget_old(const Activity& activity, std::uint64_t fetched);

  bool any_faults(const Activity& activity) const {
    return activity.major_faults != start_.major_faults;
  }
  bool enough_faults(const Activity& activity) const;
  Seconds since_start() const { return Clock::now() - started_at_; }

  // Turns readahead of a file off or on if its access has changed. Returns whether it did.
  bool judge(GuardedFile& file, const Activity& activity, std::uint64_t fetched) const;

 private:
  using Clock = std::chrono::steady_clock;
  AccessSample sample_of_process(const Activity& activity) const;

  Activity start_;
  std::uint64_t fetched_at_start_ = 0;
  Clock::time_point started_at_{};
};

}  // namespace evenkeel
