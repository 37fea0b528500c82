// Records a process tree, the page cache of its files, and its marks as a ProfileRun.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "evenkeel/meter.h"
#include "evenkeel/profile.h"
#include "meter/marks.h"
#include "meter/watch.h"
#include "profile/cost_limiter.h"

namespace evenkeel {

// Memory is read in every sample, counters and marks 20 times a second. The page cache of large
// files and the PSS take longer. They are read as often as 0.8 % of a core allows (0.35 % for a
// single process), and estimated in between. Not thread-safe.
class Recorder {
 public:
  struct Options {
    std::chrono::nanoseconds interval = std::chrono::milliseconds(10);
    // Patterns of files to watch. If empty, all files of 1 MiB or more that the program maps or
    // opens are watched, except those in system folders.
    std::vector<std::string> files = {};
    MarkFile* marks = nullptr;    // must outlive the recorder
    bool keep_files_open = true;  // see FileWatch
  };
  // Starts the clock. 0 is this process. Throws Error (kSystem, ESRCH) if there is no such process.
  Recorder(pid_t root, Options options);

  // Restarts the clock. Call it if another thread than the constructing one takes the samples: the
  // cost of recording is the CPU time of that thread.
  void start();
  // Returns false once the tree has ended.
  bool sample();
  // The same, including everything that is otherwise read less often. For the last sample.
  bool sample_all();

  const ProfileSample& latest() const { return latest_; }
  std::size_t living() const { return tree_.processes().size(); }  // as of the last sample
  const std::vector<FileWatch::File>& files() const { return watch_.files(); }
  // Returns the recording and ends it. The caller adds name, command and exit status.
  ProfileRun finish();

 private:
  using Clock = std::chrono::steady_clock;

  template <class Look>
  void look(CostLimiter& limiter, bool always, Look work);
  bool sample(bool always);
  void sample_tree();
  void read_sharing(bool always);
  void take_memory();
  void find_files();
  void watch(const std::string& path);
  void read_cache(bool always);
  void read_marks();
  void add_notes(ProfileRun& run) const;

  const Options options_;
  ProcessTree tree_;
  FileWatch watch_;
  std::uint64_t read_of_files_ = 0;  // cached bytes of files that were read before they were found
  std::map<std::string, std::string> unwatched_;  // path and error
  Clock::time_point started_, counting_due_;
  bool living_ = true;
  std::chrono::system_clock::time_point started_at_;
  std::chrono::duration<double> cpu_before_{0};  // of the recording thread
  CostLimiter finding_, caching_, pss_alone_, pss_of_tree_;
  ProcessMemory resident_;  // sums over the tree, as of the last sample
  ProfileSample latest_;    // its cache and pss are the last ones measured
  ProfileSeries series_;
  std::vector<ProfileMark> marks_;
  std::uint32_t unmeasured_ = 0;
  bool disk_unknown_ = false, files_hidden_ = false, sharing_hidden_ = false;
};

}  // namespace evenkeel
