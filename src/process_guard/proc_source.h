// Mappings of processes that run already, acted upon from outside.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/fd.h"
#include "evenkeel/meter.h"
#include "guard/access.h"
#include "process_guard/mapping_source.h"

namespace evenkeel {

// A process and its descendants. Their pages are let go by process_madvise(MADV_PAGEOUT), which
// loses nothing wherever it strikes. Readahead cannot be switched from outside.
class ProcSource : public MappingSource {
 public:
  // Throws Error (kSystem): no such process, or not permitted (CAP_SYS_NICE, and to look into it),
  // or the kernel cannot (Linux 5.10).
  ProcSource(pid_t pid, std::uint64_t least_bytes);

  void wait(std::chrono::nanoseconds most) override;
  void interrupt() override;
  std::vector<Seen> look() override;
  std::string path(const Seen& mapping) const override;
  std::unique_ptr<GuardedMapping> hold(const Seen& mapping) override;

  struct Process {
    explicit Process(pid_t pid);
    Fd pidfd;
    PageMap pages;
  };

 private:
  void look_into(pid_t pid, std::vector<Seen>& seen);

  const std::uint64_t least_bytes_;
  ProcessTree tree_;
  std::map<pid_t, std::shared_ptr<Process>> processes_;
  std::map<std::uint64_t, std::string> paths_;  // by key, as of the last look
  std::mutex mutex_;
  std::condition_variable interrupted_;
  bool stop_ = false;
};

}  // namespace evenkeel
