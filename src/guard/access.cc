#include "guard/access.h"

#include <algorithm>

#include "meter/proc.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
constexpr std::uint64_t kFaultAround = 16;  // pages of 4 KiB: fault_around_bytes is 64 KiB
// A short run counts as two touched pages; the fault mapped the others. Few rows and crops are
// larger than two pages and shorter than sixteen.
constexpr std::uint64_t kTouchedInShortRun = 2;
constexpr std::uint64_t kEnoughRuns = 3;
// Reading single pages is cheaper when readahead fetches more than this many pages for each touched
// page. Bandwidth and requests per second of common disks give about ten.
constexpr std::uint64_t kWorthwhile = 8;
// Readahead would have been cheaper for single pages that form runs of this length.
constexpr std::uint64_t kLongRun = 32, kEnoughPages = 512;

}  // namespace

void RunCounter::add(const std::uint64_t* entries, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if ((entries[i] & kPresent) != 0) {
      ++run_;
    } else if (run_ != 0) {
      end_run();
    }
  }
}

void RunCounter::end_run() {
  if (run_ == 0) return;
  sample_.resident += run_;
  ++sample_.runs;
  if (run_ <= kFaultAround) {
    ++sample_.short_runs;
  } else {
    sample_.long_pages += run_;
  }
  run_ = 0;
}

bool reads_at_random(bool random_now, const AccessSample& sample, unsigned returns) {
  if (random_now) {
    if (!sample.from_disk) return true;
    return sample.resident < kEnoughPages || sample.resident < kLongRun * sample.runs;
  }
  const std::uint64_t touched = sample.long_pages + kTouchedInShortRun * sample.short_runs;
  if (!sample.from_disk) return sample.runs >= kEnoughRuns && sample.cached >= 2 * touched;
  return sample.short_runs >= kEnoughRuns << std::min(returns, 16u) &&
         2 * sample.short_runs >= sample.runs && sample.cached >= kWorthwhile * touched;
}

PageMap::PageMap(pid_t pid) : pagemap_(open_proc(pid, "pagemap")), entries_(8192) {}

bool PageMap::count(AddressRange range, AccessSample& sample) {
  MutexLock lock(mutex_);
  RunCounter runs(sample);
  const std::uint64_t page = sys::page_size();
  for (std::uint64_t at = range.begin / page; at < range.end / page;) {
    const std::size_t wanted = std::min<std::uint64_t>(entries_.size(), range.end / page - at);
    const ssize_t got = sys::pread(pagemap_.get(), entries_.data(), wanted * 8, at * 8);
    if (got < 8) return false;
    runs.add(entries_.data(), static_cast<std::size_t>(got) / 8);
    at += static_cast<std::uint64_t>(got) / 8;
  }
  return true;
}

}  // namespace evenkeel
