// Watches a process tree, the page cache of its files and its marks, and makes a run of it.
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

// Memory is looked at in every sample, counters and marks 20 times a second; what takes long, the
// page cache of large files and the PSS, as often as fits 0.2 % of a core together, and the last
// answer stands until the next. One thread at a time.
class Recorder {
 public:
  struct Options {
    std::chrono::nanoseconds interval = std::chrono::milliseconds(10);
    // Patterns of files to watch. Empty: the data files that the program maps or opens, 1 MiB or
    // more, outside the folders of the system.
    std::vector<std::string> files = {};
    MarkFile* marks = nullptr;  // must outlive the recorder
  };
  // Time begins. 0 is this process. Throws Error (kSystem, ESRCH) when there is no such process.
  Recorder(pid_t root, Options options);

  // Time begins anew, for those who go on in another thread than the one that made it: its cost is
  // that of the thread.
  void start();
  // False once the tree has ended.
  bool sample();
  // The same, with all the looks that are otherwise rationed: for the last sample.
  bool sample_all();

  const ProfileSample& latest() const { return latest_; }
  std::size_t living() const { return tree_.processes().size(); }  // as of the last sample
  const std::vector<FileWatch::File>& files() const { return watch_.files(); }
  // What was recorded; the recorder is done then. Name, command and ending are the caller's to add.
  ProfileRun finish();

 private:
  using Clock = std::chrono::steady_clock;

  template <class Look>
  void look(CostLimiter& ration, bool always, Look work);
  bool sample(bool always);
  void sample_tree();
  void take(const ProcessMemory& memory);
  void find_files();
  void watch(const std::string& path);
  void read_cache(bool always);
  void read_marks();
  void add_notes(ProfileRun& run) const;

  const Options options_;
  ProcessTree tree_;
  FileWatch watch_;
  std::map<std::string, std::string> unwatched_;  // path and why not
  Clock::time_point started_, counting_due_;
  bool living_ = true;
  std::chrono::system_clock::time_point started_at_;
  double cpu_before_ = 0;
  CostLimiter finding_, caching_, sharing_;
  ProfileSample latest_;
  ProfileSeries series_;
  std::vector<ProfileMark> marks_;
  std::uint32_t unmeasured_ = 0;
  bool disk_unknown_ = false, files_hidden_ = false;
};

}  // namespace evenkeel
