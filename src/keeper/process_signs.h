// Signs of other processes, added up.
#pragma once

#include <sys/types.h>

#include <map>
#include <mutex>
#include <set>

#include "base/fd.h"
#include "guard/signs.h"

namespace evenkeel {

// What ended processes have done stays in the sums; what they had mapped does not. Thread-safe.
class ProcessSigns : public SignSource {
 public:
  // Those that are read from now on.
  void follow(const std::set<pid_t>& processes);
  Signs read() override;

 private:
  struct One {
    explicit One(pid_t pid);
    Signs read() const;
    Fd stat, io, statm;
    Signs last;
  };
  std::mutex mutex_;
  std::map<pid_t, One> processes_;
  Signs sum_;  // all but `mapped`
};

}  // namespace evenkeel
