// Keeps the page cache of mapped files within a budget: decides what to count, what to release, and
// when.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "evenkeel/guard.h"
#include "guard/access_judge.h"
#include "guard/activity.h"
#include "guard/evictor_thread.h"
#include "guard/guarded_file.h"
#include "guard/thresholds.h"

namespace evenkeel {

// Runs on the evictor thread of the process while it has files. Thread-safe. A child of fork must
// not use the evictor of its parent: the thread does not exist there, and a mutex may stay locked.
class Evictor : private BackgroundTask {
 public:
  struct Options : GuardOptions {
    // For mappings of other processes, which are unmapped without notice. With `remember`, that is
    // not a failure, and a file without mappings stays guarded as long as some of it is cached.
    bool remember = false;
  };
  // `activity` covers all processes whose mappings are guarded.
  Evictor(const Options& options, std::unique_ptr<ActivitySource> activity);
  ~Evictor() override;

  // Replaces an earlier mapping with the same key. `fd` is a descriptor of the file; it may be
  // empty if the mapping has its own. `prepare` is called with the file if it is new. Throws Error
  // (kSystem).
  using Prepare = std::function<void(GuardedFile&)>;
  void add(std::unique_ptr<GuardedMapping> mapping, Fd fd, const Prepare& prepare = {});
  // Adds a mapping of a file that is already guarded. Returns false if it is not, or if it cannot
  // be opened again by the name it had; then call add().
  bool add_known(std::unique_ptr<GuardedMapping>& mapping, std::uint64_t device,
                 std::uint64_t inode);
  // After it returns, the evictor does not use the mapping any more.
  bool remove(std::uint64_t key);
  GuardReport report();

 private:
  using Clock = std::chrono::steady_clock;
  using FileId = std::pair<std::uint64_t, std::uint64_t>;  // device, inode
  // Locks mutex_ for a caller. While callers wait, the evictor thread pauses between steps.
  class CallerLock;
  struct Candidate {
    GuardedFile* file;
    std::size_t part;
    const CacheMap::Part& cache() const { return file->cache_map()[part]; }
  };

  Seconds run() noexcept override;

  // Files and mappings.
  void insert(std::unique_ptr<GuardedMapping> mapping, Fd fd, const Prepare& prepare)
      REQUIRES(mutex_);
  void add_to(GuardedFile& file, std::unique_ptr<GuardedMapping> mapping) REQUIRES(mutex_);
  void count_resident_of_new(GuardedFile& file, const GuardedMapping& mapping) REQUIRES(mutex_);
  GuardedFile* find(std::uint64_t device, std::uint64_t inode) const REQUIRES(mutex_);
  bool erase(std::uint64_t key) REQUIRES(mutex_);
  void look_at_unmapped() REQUIRES(mutex_);
  void forget_unmapped() REQUIRES(mutex_);
  void forget(std::uint64_t device, std::uint64_t inode) REQUIRES(mutex_);
  void forget_lost() REQUIRES(mutex_);
  void include(const GuardedFile& file) REQUIRES(mutex_);
  void files_changed() REQUIRES(mutex_);
  bool fits() const REQUIRES(mutex_) { return file_bytes_ <= thresholds_.budget; }

  // Looking.
  Seconds step() REQUIRES(mutex_);
  std::uint64_t claimed_growth(const Activity& activity) const REQUIRES(mutex_);
  std::uint64_t uncounted_bytes(const Activity& activity) const REQUIRES(mutex_);
  bool look_is_due(const Activity& activity, std::uint64_t estimate, bool active) const
      REQUIRES(mutex_);
  void look() REQUIRES(mutex_);
  void sum_up() REQUIRES(mutex_);
  void note_peak(std::uint64_t bytes) REQUIRES(mutex_);

  // Releasing.
  std::vector<Candidate> oldest_first() const REQUIRES(mutex_);
  std::size_t release_parts(std::span<const Candidate> parts) REQUIRES(mutex_);
  Seconds release() REQUIRES(mutex_);
  Seconds wait_for_disk(std::uint64_t writing, Seconds took) REQUIRES(mutex_);
  Seconds release_uncounted(const Activity& activity) REQUIRES(mutex_);
  void note_stuck() REQUIRES(mutex_);
  void note_not_released(const GuardedFile& file, int error) REQUIRES(mutex_);
  void note_failure(const std::string& what) REQUIRES(mutex_);
  std::vector<std::string> failures() const REQUIRES(mutex_);

  // Readahead.
  double judging_interval() const REQUIRES(mutex_);
  void judge_access(const Activity& activity) REQUIRES(mutex_);
  void access_switched(GuardedFile& file) REQUIRES(mutex_);
  void limit_readahead() REQUIRES(mutex_);

  const Options options_;
  const Thresholds thresholds_;
  EvictorThread& thread_;

  Mutex lifecycle_;                              // one add or remove at a time; taken before mutex_
  bool running_ GUARDED_BY(lifecycle_) = false;  // on thread_

  Mutex mutex_;
  std::atomic<int> waiting_ = 0;  // callers that wait for mutex_
  const std::unique_ptr<ActivitySource> activity_ PT_GUARDED_BY(mutex_);
  std::map<FileId, std::unique_ptr<GuardedFile>> files_ GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, GuardedFile*> file_of_mapping_ GUARDED_BY(mutex_);  // by key
  bool changed_ GUARDED_BY(mutex_) = false;  // files or mappings, since the last step
  GuardReport report_ GUARDED_BY(mutex_);

  // Sums over files_: include() adds a file, files_changed() computes them again.
  std::uint64_t file_bytes_ GUARDED_BY(mutex_) = 0;
  bool any_counted_ GUARDED_BY(mutex_) = false, any_uncounted_ GUARDED_BY(mutex_) = false;
  std::uint64_t readahead_ GUARDED_BY(mutex_) = 0;  // bytes; the maximum over the counted files

  Activity last_ GUARDED_BY(mutex_);        // at the last step
  Activity at_look_ GUARDED_BY(mutex_);     // at the last look, or after the last release
  Activity at_release_ GUARDED_BY(mutex_);  // when uncounted files were last released
  AccessJudge judge_ GUARDED_BY(mutex_);
  std::uint64_t resident_at_add_ GUARDED_BY(mutex_) = 0;  // of uncounted files, not yet released
  // The share of claimed_growth() that the last looks found to be growth of the guarded files.
  double trust_ GUARDED_BY(mutex_) = 1;
  std::size_t limited_for_ GUARDED_BY(mutex_) = 0;  // mappings when limit_readahead() last ran
  bool releasing_ GUARDED_BY(mutex_) = false;       // on the way from trigger to target
  std::size_t stayed_ GUARDED_BY(mutex_) = 0;       // parts that were tried in vain since a pause
  // Whether memory was within the budget at some time since a mapping was added. Pages that were
  // cached before that do not count as exceeding the budget.
  bool settled_ GUARDED_BY(mutex_) = false;
  std::uint64_t peak_settled_ GUARDED_BY(mutex_) = 0;  // the highest peak while settled_
  std::uint64_t unsettled_ GUARDED_BY(mutex_) = 0;     // bytes at the last look, if not settled_
  std::uint64_t forgotten_fetched_ GUARDED_BY(mutex_) = 0;  // bytes_fetched of files that are gone
  Clock::time_point active_at_ GUARDED_BY(mutex_){}, looked_at_ GUARDED_BY(mutex_){},
      forgot_at_ GUARDED_BY(mutex_){}, stuck_until_ GUARDED_BY(mutex_){},
      writing_since_ GUARDED_BY(mutex_){};
  // CPU time: on a busy machine, wall time would include other programs.
  Seconds activity_cost_ GUARDED_BY(mutex_){0}, look_cost_ GUARDED_BY(mutex_){0},
      judging_cost_ GUARDED_BY(mutex_){0};
  Seconds stuck_for_ GUARDED_BY(mutex_){0};
};

}  // namespace evenkeel
