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
  std::vector<std::string> files;  // patterns; files that match none are left alone. Empty: all
  // Called from the guard's thread when something cannot be guarded, as soon as that is known: for
  // the first note of each kind. All notes are in the report's failures.
  std::function<void(const std::string& note)> on_note = {};
};

// Whether a path matches one of the patterns. One with a slash is compared with the whole path,
// relative to the current folder; one without is compared with the file's name.
bool matches(const std::vector<std::string>& patterns, const std::string& path);

// One budget for all processes of the source. Thread-safe.
class ProcessGuard {
 public:
  // `source` must outlive it.
  ProcessGuard(const ProcessGuardOptions& options, MappingSource& source);
  ~ProcessGuard();
  ProcessGuard(const ProcessGuard&) = delete;
  ProcessGuard& operator=(const ProcessGuard&) = delete;

  GuardReport report();
  std::size_t files() const { return files_; }  // guarded so far

 private:
  using Clock = std::chrono::steady_clock;
  void run() noexcept;
  void sync();
  // False when it should be tried again later.
  bool add(const ObservedMapping& mapping);
  bool wanted(const ObservedMapping& mapping);
  // `kind` is what the notes that are printed once have in common.
  void note(const std::string& kind, const std::string& what);

  const ProcessGuardOptions options_;
  MappingSource& source_;
  ProcessActivity* const activity_;  // the evictor owns it
  Evictor evictor_;
  // Of the thread alone.
  std::map<std::uint64_t, std::uint64_t> known_;  // generations by key
  std::map<std::string, bool> wanted_;            // by path
  Clock::time_point retry_at_{};                  // when files are opened again that could not be
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
