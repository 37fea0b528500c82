// Finds the mappings of running processes in /proc and releases their pages from outside.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/mutex.h"
#include "evenkeel/meter.h"
#include "guard/access.h"
#include "process_guard/mapping_source.h"

namespace evenkeel {

// Covers a process and its descendants. Their pages are released by process_madvise(MADV_PAGEOUT),
// which loses no data, whatever is mapped there. Readahead cannot be changed from outside.
class ProcSource : public MappingSource {
 public:
  // Throws Error (kSystem) if there is no such process, if permissions are missing (CAP_SYS_NICE,
  // and reading its /proc), or if the kernel lacks the call (before Linux 5.10).
  ProcSource(pid_t pid, std::uint64_t least_bytes);

  void wait(std::chrono::nanoseconds most) override;
  void interrupt() override;
  std::vector<ObservedMapping> observe() override;
  std::string path(const ObservedMapping& mapping) const override;
  std::unique_ptr<GuardedMapping> make_guarded(const ObservedMapping& mapping,
                                               bool has_descriptor) override;

  struct Process {
    explicit Process(pid_t pid);
    Fd pidfd;
    PageMap pages;
  };

 private:
  void observe_process(pid_t pid, std::vector<ObservedMapping>& out);

  const std::uint64_t least_bytes_;
  ProcessTree tree_;
  std::map<pid_t, std::shared_ptr<Process>> processes_;
  std::map<std::uint64_t, std::string> paths_;  // by key, as of the last observe()
  Mutex mutex_;
  CondVar interrupted_;
  bool stop_ GUARDED_BY(mutex_) = false;
};

}  // namespace evenkeel
