// Decides from its resident and cached pages whether a mapping is read at random or in order.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "meter/proc_maps.h"

namespace evenkeel {

// Counts of pages in the sampled ranges of a mapping.
struct AccessSample {
  std::uint64_t cached = 0;
  std::uint64_t resident = 0;    // cached and mapped
  std::uint64_t runs = 0;        // runs of resident pages without a gap
  std::uint64_t short_runs = 0;  // runs no longer than what one fault maps around itself
  std::uint64_t long_pages = 0;  // pages in the other runs
  bool from_disk = true;         // false: no disk read was needed, as for holes in a file
};

// Cuts a sequence of pages into runs. `entries` come from /proc/PID/pagemap. A run that continues
// from one call to the next counts once.
class RunCounter {
 public:
  explicit RunCounter(AccessSample& sample) : sample_(sample) {}
  ~RunCounter() { end_run(); }
  RunCounter(const RunCounter&) = delete;
  RunCounter& operator=(const RunCounter&) = delete;
  void add(const std::uint64_t* entries, std::size_t count);

 private:
  void end_run();
  AccessSample& sample_;
  std::uint64_t run_ = 0;
};

// Readahead is turned off when most touched pages are in short runs and many times as many pages
// were fetched. It is turned on again when pages that were fetched one by one lie side by side.
// `returns` counts how often that happened; each time it takes more to turn readahead off again. If
// pages come without disk reads, readahead saves nothing: it is turned off when half of the fetched
// pages are not used, and stays off.
bool reads_at_random(bool random_now, const AccessSample& sample, unsigned returns);

// Reads the present bits in /proc/PID/pagemap. Thread-safe. A child of fork must not use it.
class PageMap {
 public:
  explicit PageMap(pid_t pid = 0);  // 0: the calling process
  // Adds the resident pages of the range to the sample. Returns false if the kernel refuses.
  bool count(AddressRange range, AccessSample& sample) EXCLUDES(mutex_);

 private:
  const Fd pagemap_;
  Mutex mutex_;
  std::vector<std::uint64_t> entries_ GUARDED_BY(mutex_);
};

}  // namespace evenkeel
