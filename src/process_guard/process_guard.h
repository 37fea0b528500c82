// Keeps the mapped files of other processes under a line.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "evenkeel/guard.h"
#include "guard/evictor.h"
#include "process_guard/mapping_source.h"
#include "process_guard/process_activity.h"

namespace evenkeel {

struct ProcessGuardOptions {
  GuardOptions guard;
  std::vector<std::string> files;  // patterns; those that match none are left alone. Empty: all
};

// Whether a path matches one of the patterns: with a slash as a whole, seen from the folder we are
// in, without one by its last name.
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
  std::size_t files() const { return files_; }  // governed so far

 private:
  void run() noexcept;
  void sync();
  void take(const Seen& mapping);
  bool wanted(const Seen& mapping);
  void note(const std::string& what);

  const ProcessGuardOptions options_;
  MappingSource& source_;
  ProcessActivity* const signs_;  // the governor's
  Evictor governor_;
  std::map<std::uint64_t, std::uint64_t> known_;  // generations by key
  std::map<std::string, bool> wanted_;            // by path
  std::atomic<std::size_t> files_ = 0;
  std::atomic<bool> stopping_ = false;
  std::mutex notes_mutex_;
  std::vector<std::string> notes_;
  std::thread thread_;

  ProcessGuard(const ProcessGuardOptions& options, MappingSource& source,
               std::unique_ptr<ProcessActivity> signs);
};

}  // namespace evenkeel
