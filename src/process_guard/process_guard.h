// Keeps the mapped files of other processes within a budget.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "evenkeel/guard.h"
#include "guard/evictor.h"
#include "process_guard/mapping_source.h"
#include "process_guard/process_activity.h"

namespace evenkeel {

struct ProcessGuardOptions {
  GuardOptions guard;
  std::vector<std::string> files;  // patterns of the files to guard; empty: all files
  // Called from the guard's thread as soon as something cannot be guarded, for the first note of
  // each kind. All notes are in the report's failures.
  std::function<void(const std::string& note)> on_note = {};
};

// Whether a path matches one of the patterns. A pattern with a slash is taken relative to the
// current folder and compared with the whole path; a pattern without one is compared with the
// file's name.
bool matches(const std::vector<std::string>& patterns, const std::string& path);

// All processes of the source share one budget. Thread-safe.
class ProcessGuard {
 public:
  // `source` must outlive the guard.
  ProcessGuard(const ProcessGuardOptions& options, MappingSource& source);
  ~ProcessGuard();
  ProcessGuard(const ProcessGuard&) = delete;
  ProcessGuard& operator=(const ProcessGuard&) = delete;

  GuardReport report();
  std::size_t files() const { return files_; }  // number of files guarded so far

 private:
  using Clock = std::chrono::steady_clock;
  void run() noexcept;
  void sync();
  // Returns false if it should be tried again later.
  bool add(const ObservedMapping& mapping);
  bool wanted(const ObservedMapping& mapping);
  // on_note is called only for the first note of a kind.
  void note(const std::string& kind, const std::string& what);

  const ProcessGuardOptions options_;
  MappingSource& source_;
  ProcessActivity* const activity_;  // the evictor owns it
  Evictor evictor_;
  // Only thread_ uses these four.
  std::map<std::uint64_t, std::uint64_t> known_;  // generations by key
  std::map<std::string, bool> wanted_;            // by path
  Clock::time_point retry_at_{};                  // when to try again to open files
  std::set<std::string> announced_;               // kinds of notes

  std::atomic<std::size_t> files_ = 0;
  std::atomic<bool> stopping_ = false;
  Mutex mutex_;
  std::vector<std::string> notes_ GUARDED_BY(mutex_);
  std::thread thread_;

  ProcessGuard(const ProcessGuardOptions& options, MappingSource& source,
               std::unique_ptr<ProcessActivity> activity);
};

}  // namespace evenkeel
