// Watches, from outside, what a process and the page cache of some files grow to.
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

// Files kept open, to ask again and again how much of them is cached.
class CacheWatch {
 public:
  explicit CacheWatch(const std::vector<std::string>& paths);  // throws Error (kSystem)
  std::optional<std::uint64_t> cached() const;  // of all of them; empty when the kernel won't tell

 private:
  std::vector<Fd> files_;
};

// The most that was seen above the baseline, in bytes.
struct Growth {
  std::uint64_t rss = 0, anon = 0;
  std::optional<std::uint64_t> cache;   // empty: the kernel does not tell
  std::optional<std::uint64_t> memory;  // anon + cache at one moment; a mapped page counts once

  // Empty when what is known fits, and the cache is not known.
  std::optional<bool> within(std::uint64_t budget) const;
};

// The baseline is taken when this is made. The process is sampled whenever `sample` is called; the
// cache, which takes 2 ms for each GiB cached, as often as costs a twentieth of the time; what it
// has read and how often it faulted every 10 ms.
class MemoryWatch {
 public:
  static constexpr std::chrono::milliseconds kInterval{2};

  // `peak_reset`: the process has reset its VmHWM, so that peaks between samples are known as well.
  MemoryWatch(pid_t pid, const CacheWatch& files, bool peak_reset);
  void sample();
  void sample_all();  // the cache too, whenever it was last asked
  const Growth& growth() const { return growth_; }
  // Growth over time; the watch is done then.
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
