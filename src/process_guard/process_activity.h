// Activity of other processes, added up.
#pragma once

#include <sys/types.h>

#include <map>
#include <mutex>
#include <set>

#include "base/fd.h"
#include "guard/activity.h"

namespace evenkeel {

// What ended processes have done stays in the sums; what they had mapped does not. Thread-safe.
class ProcessActivity : public ActivitySource {
 public:
  // These are read from now on. Those of before, too, until they end: a program that maps anew for
  // each batch has at times no mapping, and goes on reading.
  void follow(const std::set<pid_t>& processes);
  Activity read() override;

 private:
  struct One {
    explicit One(pid_t pid);
    Activity read() const;
    bool ended() const;
    Fd stat, io, statm;
    Activity last;
  };
  void add_up(One& one);

  std::mutex mutex_;
  std::map<pid_t, One> processes_;
  Activity sum_;  // all but `mapped`
};

}  // namespace evenkeel
