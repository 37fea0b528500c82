// The thread behind a Guard, and what it decides.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "evenkeel/guard.h"
#include "guard/access.h"
#include "guard/activity.h"
#include "guard/guarded_file.h"
#include "guard/thresholds.h"

namespace evenkeel {

// Thread-safe. Of no use in a child of fork: neither thread nor locks are right there.
class Evictor {
 public:
  struct Options : GuardOptions {
    // For mappings of other processes, which go without a word: that is no failure, and files of
    // which no mapping is left are watched on as long as some of them is cached.
    bool remember = false;
  };
  // `signs` are those of all processes whose mappings it holds.
  Evictor(const Options& options, std::unique_ptr<ActivitySource> signs);
  ~Evictor();

  // A mapping that is known already is held anew. `fd` is of its file; closed when that is not
  // needed. What is done to the file itself, `prepare` is the place for. Throws Error (kSystem).
  using Prepare = std::function<void(GuardedFile&)>;
  void add(std::unique_ptr<GuardedMapping> mapping, Fd fd, const Prepare& prepare = {});
  // Of a file that is watched already; false when it is not, and then nothing has happened.
  bool add_known(std::unique_ptr<GuardedMapping>& mapping, std::uint64_t device,
                 std::uint64_t inode);
  // When it returns, the governor does not touch the mapping any more.
  bool remove(std::uint64_t key);
  GuardReport report();

 private:
  using Clock = std::chrono::steady_clock;
  // A turn of someone who is not the governor: it has priority over a release that takes long.
  class Turn;

  void start();
  void stop();
  void run() noexcept;

  // All below under mutex_.
  void hold(std::unique_ptr<GuardedMapping> mapping, Fd fd, const Prepare& prepare);
  GuardedFile* find(std::uint64_t device, std::uint64_t inode) const;
  void add_to(GuardedFile& file, std::unique_ptr<GuardedMapping> mapping);
  bool drop(std::uint64_t key);
  void forget_unmapped();
  Seconds tick_safely() noexcept;
  Seconds tick();
  bool fits() const;
  std::uint64_t uncounted(const Activity& signs) const;
  bool look_is_due(const Activity& signs, std::uint64_t estimate, bool active) const;
  void look();
  void count();
  struct Candidate {
    GuardedFile* file;
    std::size_t part;
    const CacheMap::Part& filled() const { return file->segments()[part]; }
  };
  std::vector<Candidate> candidates() const;
  void start_writing(const std::vector<Candidate>& oldest) const;
  void release_part(const Candidate& one);
  Seconds release();
  Seconds release_uncounted(const Activity& signs);
  void note_stuck();
  bool too_few_faults(const Activity& signs) const;
  double patience() const;
  void consider_access(const Activity& signs);
  AccessSample sample_signs(const Activity& signs) const;
  void switch_access(GuardedFile& one, const Activity& signs);
  void forget_lost();
  void note_failure(const std::string& what);

  const Options options_;
  const Thresholds lines_;
  std::mutex lifecycle_;  // one add or remove at a time; before mutex_

  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<int> waiting_ = 0;  // turns that wait
  bool stopping_ = false, changed_ = false;
  std::thread thread_;

  const std::unique_ptr<ActivitySource> sign_source_;
  std::vector<std::unique_ptr<GuardedFile>> watched_;
  GuardReport report_;

  Activity last_;                      // at the last tick
  Activity at_look_;                   // when the page cache was last asked, or released
  Activity at_sample_;                 // when access was last judged
  Activity at_release_;                // when uncounted mappings were last released
  std::uint64_t resident_at_add_ = 0;  // of uncounted mappings, not yet released
  double trust_ = 1;        // how much of the growth that signs claim is growth of the mappings
  bool releasing_ = false;  // on the way from trigger to target
  Clock::time_point active_at_{}, looked_at_{}, sampled_at_{}, stuck_until_{};
  Seconds look_took_{0}, sample_took_{0}, stuck_for_{0};
};

}  // namespace evenkeel
