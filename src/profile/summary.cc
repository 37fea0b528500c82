#include <algorithm>
#include <span>

#include "evenkeel/profile.h"
#include "profile/slope.h"
#include "profile/verdict.h"

namespace evenkeel {
namespace {

using Samples = std::vector<ProfileSample>;

void raise(std::uint64_t& peak, std::uint64_t value) { peak = std::max(peak, value); }

void raise(std::optional<std::uint64_t>& peak, std::uint64_t value) {
  if (value != ProfileSample::kUnknown) peak = std::max(peak.value_or(0), value);
}

void raise_peaks(ProfileSummary& summary, const ProfileSample& sample) {
  raise(summary.peak_anon, sample.anon);
  raise(summary.peak_file, sample.file);
  raise(summary.peak_shmem, sample.shmem);
  raise(summary.peak_rss, sample.rss());
  if (sample.memory() > summary.peak_memory) {
    summary.peak_memory = sample.memory();
    summary.file_at_peak = sample.memory() - sample.anon - sample.shmem;
  }
  raise(summary.peak_unreclaimable, sample.anon + sample.shmem + sample.page_tables);
  raise(summary.peak_page_tables, sample.page_tables);
  raise(summary.peak_swap, sample.swap);
  raise(summary.peak_cache, sample.cache);
  raise(summary.peak_pss, sample.pss);
  summary.most_processes = std::max(summary.most_processes, sample.processes);
}

// The second half by time, or less if the program is still climbing to its usual level then. Empty
// if it is too short for a slope.
std::span<const ProfileSample> second_half(const Samples& samples) {
  if (samples.size() < kFewestSamplesForSlope) return {};
  const double first = samples.front().seconds, last = samples.back().seconds;
  if (last - first < kShortestSecondsForSlope) return {};
  const auto half = std::find_if(samples.begin(), samples.end(), [&](const ProfileSample& sample) {
    return sample.seconds >= first + (last - first) / 2;
  });
  const auto climbed = samples.begin() + static_cast<std::ptrdiff_t>(climb_end(samples));
  const std::span<const ProfileSample> rest(std::max(half, climbed), samples.end());
  return rest.size() < kFewestSamplesForSlope / 2 ? std::span<const ProfileSample>{} : rest;
}

template <typename Value>
std::optional<double> slope_a_minute(std::span<const ProfileSample> samples, Value value) {
  std::vector<TimedValue> points;
  points.reserve(samples.size());
  for (const ProfileSample& sample : samples) {
    points.push_back({sample.seconds, static_cast<double>(value(sample))});
  }
  const auto slope = median_slope(points);
  return slope ? std::optional(*slope * 60) : std::nullopt;
}

// A sample counts for the time since the one before, even if it was merged from several.
double seconds_over(const Samples& samples, std::uint64_t budget) {
  double over = 0, before = 0;
  for (const ProfileSample& sample : samples) {
    if (sample.memory() > budget) over += std::max(0.0, sample.seconds - before);
    before = sample.seconds;
  }
  return over;
}

}  // namespace

ProfileSummary summarize(const ProfileRun& run, std::optional<std::uint64_t> budget) {
  ProfileSummary summary;
  if (run.samples.empty()) return summary;
  for (const ProfileSample& sample : run.samples) raise_peaks(summary, sample);

  const auto half = second_half(run.samples);
  summary.slope_rss = slope_a_minute(half, [](const ProfileSample& s) { return s.rss(); });
  summary.slope_anon = slope_a_minute(half, [](const ProfileSample& s) { return s.anon; });
  summary.slope_memory = slope_a_minute(half, [](const ProfileSample& s) { return s.memory(); });
  summary.trend = trend_of(run.samples);
  if (budget && !run.guarded_peak) summary.seconds_over_budget = seconds_over(run.samples, *budget);

  const ProfileSample& last = run.samples.back();
  summary.disk_read = last.disk_read;
  summary.major_faults = last.major_faults;
  summary.minor_faults = last.minor_faults;
  summary.cpu_seconds = last.cpu_seconds;
  return summary;
}

}  // namespace evenkeel
