// The sum of the activity of other processes.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <set>

#include "base/fd.h"
#include "base/mutex.h"
#include "guard/activity.h"

namespace evenkeel {

// The sums keep the reads and faults of ended processes, but not their mapped bytes. Thread-safe.
class ProcessActivity : public ActivitySource {
 public:
  // Adds these processes to those that are read. A process stays until it ends: a program that
  // creates its mapping again for every batch has none at times, but goes on reading. Returns how
  // many processes cannot be read for lack of descriptors.
  std::size_t follow(const std::set<pid_t>& processes) EXCLUDES(mutex_);
  Activity read() override EXCLUDES(mutex_);

 private:
  struct One {
    explicit One(pid_t pid);
    Activity read() const;
    bool ended() const;
    Fd stat, io, statm;
    bool no_descriptors;  // some files could not be opened for lack of descriptors
    Activity last;
  };
  void add_up(One& one) REQUIRES(mutex_);

  Mutex mutex_;
  std::map<pid_t, One> processes_ GUARDED_BY(mutex_);
  Activity sum_ GUARDED_BY(mutex_);  // all but `mapped`
};

}  // namespace evenkeel
