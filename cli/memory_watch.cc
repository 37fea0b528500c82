#include "cli/memory_watch.h"

#include <sys/resource.h>

#include <algorithm>

#include "meter/file_cache.h"
#include "profile/estimate.h"

namespace evenkeel::cli {
namespace {

std::uint64_t above(std::uint64_t value, std::uint64_t baseline) {
  return value > baseline ? value - baseline : 0;
}

void allow_many_files(std::size_t count) {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || count + 64 < limit.rlim_cur) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

CacheWatch::CacheWatch(const std::vector<std::string>& paths) {
  allow_many_files(paths.size());
  for (const std::string& path : paths) files_.push_back(open_readable(path));
}

std::optional<std::uint64_t> CacheWatch::cached() const {
  std::uint64_t bytes = 0;
  for (const Fd& file : files_) {
    const auto cache = file_cache_of(file.get());
    if (!cache) return std::nullopt;
    bytes += cache->cached;
  }
  return bytes;
}

std::optional<bool> Growth::within(std::uint64_t budget) const {
  if (rss > budget || anon > budget) return false;
  if (!memory) return std::nullopt;
  return *memory <= budget;
}

MemoryWatch::MemoryWatch(pid_t pid, const CacheWatch& files, bool peak_reset)
    : pid_(pid),
      meter_(pid),
      files_(files),
      peak_reset_(peak_reset),
      started_(std::chrono::steady_clock::now()),
      counters_before_(process_counters(pid)) {
  if (const auto cached = files_.cached()) {
    cache_baseline_ = cache_now_ = *cached;
    growth_.cache = growth_.memory = 0;
  }
  baseline_ = meter_.sample().value_or(ProcessMemory{});
}

void MemoryWatch::sample() {
  if (growth_.cache && std::chrono::steady_clock::now() >= cache_due_) sample_cache();
  sample_process();
}

void MemoryWatch::sample_all() {
  if (growth_.cache) sample_cache();
  sample_process();
}

void MemoryWatch::sample_cache() {
  const auto begin = std::chrono::steady_clock::now();
  cache_now_ = files_.cached().value_or(cache_now_);
  const auto end = std::chrono::steady_clock::now();
  cache_due_ = end + 20 * (end - begin);
  latest_.cache_measured = true;
  growth_.cache = std::max(*growth_.cache, above(cache_now_, cache_baseline_));
}

std::vector<ProfileSample> MemoryWatch::take_samples() {
  std::vector<ProfileSample> samples = series_.take();
  estimate_between(samples);
  return samples;
}

void MemoryWatch::sample_counters() {
  const ProcessCounters now = process_counters(pid_);
  latest_.disk_read = above(now.disk_read.value_or(0), counters_before_.disk_read.value_or(0));
  latest_.major_faults = above(now.major_faults, counters_before_.major_faults);
  latest_.minor_faults = above(now.minor_faults, counters_before_.minor_faults);
  latest_.cpu_seconds = now.cpu_seconds - counters_before_.cpu_seconds;
}

void MemoryWatch::sample_process() {
  const auto now = meter_.sample();
  if (!now) return;
  const auto time = std::chrono::steady_clock::now();
  if (time >= counters_due_) {
    sample_counters();
    counters_due_ = time + std::chrono::milliseconds(10);
  }
  latest_.seconds = std::chrono::duration<double>(time - started_).count();
  latest_.anon = above(now->anon, baseline_.anon);
  latest_.file = above(now->file, baseline_.file);
  latest_.shmem = above(now->shmem, baseline_.shmem);
  latest_.page_tables = above(now->page_tables, baseline_.page_tables);
  latest_.swap = above(now->swap, baseline_.swap);
  if (growth_.cache) latest_.cache = above(cache_now_, cache_baseline_);
  latest_.processes = 1;
  series_.add(latest_);
  latest_.cache_measured = false;
  const std::uint64_t most_rss = peak_reset_ ? std::max(now->rss(), now->peak_rss) : now->rss();
  const std::uint64_t anon = above(now->anon, baseline_.anon);
  growth_.rss = std::max(growth_.rss, above(most_rss, baseline_.rss()));
  growth_.anon = std::max(growth_.anon, anon);
  if (!growth_.memory) return;
  growth_.memory = std::max(*growth_.memory, anon + above(cache_now_, cache_baseline_));
}

}  // namespace evenkeel::cli
