// Measures from outside how much the memory of a process and the page cache of files grow.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "evenkeel/profile.h"
#include "meter/process.h"

namespace evenkeel::cli {

// Keeps files open, to count repeatedly how much of them is cached.
class CacheWatch {
 public:
  explicit CacheWatch(const std::vector<std::string>& paths);  // throws Error (kSystem)
  std::optional<std::uint64_t> cached() const;  // empty if the kernel does not report it

 private:
  std::vector<Fd> files_;
};

// The largest values above the baseline, in bytes.
struct Growth {
  std::uint64_t rss = 0, anon = 0;
  std::optional<std::uint64_t> cache;   // empty: not reported by the kernel
  std::optional<std::uint64_t> memory;  // anon + cache at one moment; a mapped page counts once

  // Empty if the known parts fit but the cache is unknown.
  std::optional<bool> within(std::uint64_t budget) const;
};

// The constructor takes the baseline. `sample` measures the process on every call. It counts cached
// pages, which takes 2 ms per cached GiB, only so often that this takes a twentieth of the time. It
// reads the counters of disk reads and faults every 10 ms.
class MemoryWatch {
 public:
  static constexpr std::chrono::milliseconds kInterval{2};

  // `peak_reset`: the process has reset its VmHWM, so that peaks between samples are known as well.
  MemoryWatch(pid_t pid, const CacheWatch& files, bool peak_reset);
  void sample();
  void sample_all();  // always counts cached pages, too
  const Growth& growth() const { return growth_; }
  // Growth over time. Call it once, at the end.
  std::vector<ProfileSample> take_samples();

 private:
  void sample_cache();
  void sample_process();
  void sample_counters();

  const pid_t pid_;
  ProcessMeter meter_;
  const CacheWatch& files_;
  const bool peak_reset_;
  ProcessMemory baseline_;
  std::uint64_t cache_baseline_ = 0, cache_now_ = 0;
  std::chrono::steady_clock::time_point started_, cache_due_, counters_due_;
  ProcessCounters counters_before_;
  Growth growth_;
  ProfileSample latest_;
  ProfileSeries series_;
};

}  // namespace evenkeel::cli
