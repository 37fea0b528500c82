// Whether a mapping is read at random or in order, by which of its pages are resident and cached.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "meter/proc_maps.h"

namespace evenkeel {

// In pages.
struct AccessSample {
  std::uint64_t cached = 0;      // in the sampled ranges
  std::uint64_t resident = 0;    // of these, mapped
  std::uint64_t runs = 0;        // of resident pages without a gap
  std::uint64_t short_runs = 0;  // no longer than what one fault maps around itself
  std::uint64_t long_pages = 0;  // pages in the other runs
  bool from_disk = true;         // false: pages came without a read, as holes of a file do
};

// Cuts a sequence of pages into runs. `present`: entries of /proc/PID/pagemap. A run that reaches
// from one call into the next counts once.
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

// Readahead goes off when most touched pages are in short runs, and many times as many were
// fetched. It comes back when pages that were fetched one by one lie side by side. `returns` is how
// often it came back already; each time it takes more to turn it off again. Where pages come
// without a read from the disk, readahead saves nothing: it goes off when half of it is not used,
// and stays off.
bool reads_at_random(bool random_now, const AccessSample& sample, unsigned returns);

// The present bits in /proc/PID/pagemap. Thread-safe. Not for use in a child of fork.
class PageMap {
 public:
  explicit PageMap(pid_t pid = 0);  // 0 is this one
  // Adds to the sample what is resident in the range; false when the kernel will not say.
  bool count(AddressRange range, AccessSample& sample) EXCLUDES(mutex_);

 private:
  const Fd pagemap_;
  Mutex mutex_;
  std::vector<std::uint64_t> entries_ GUARDED_BY(mutex_);
};

}  // namespace evenkeel
