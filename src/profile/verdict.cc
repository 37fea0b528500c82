#include "profile/verdict.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>

#include "evenkeel/bytes.h"
#include "profile/slope.h"

namespace evenkeel {
namespace {

using SampleSpan = std::span<const ProfileSample>;

constexpr double kMiB = 1 << 20;
constexpr double kFlatPerMinute = 0.1 * kMiB;  // less than this is noise
constexpr double kClimbed = 0.95;              // of the way from the start to the usual level
constexpr double kClimbEnds = 0.9;             // of the run; a longer climb is a slope
constexpr double kStillClimbing = 0.25;        // of the speed of the climb
constexpr double kLeastClimb = 0.25;           // of the usual level

std::string bytes_words(double bytes) {
  return format_size(static_cast<std::uint64_t>(std::llround(std::abs(bytes))));
}

std::string time_words(double seconds) {
  char text[32];
  if (seconds >= 120) {
    std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
  } else {
    std::snprintf(text, sizeof text, seconds < 9.95 ? "%.1f s" : "%.0f s", seconds);
  }
  return text;
}

// The level of memory for most of the time after the climb: the 90th percentile, so that a spike
// does not count.
double usual_level(SampleSpan samples) {
  std::vector<double> values;
  values.reserve(samples.size());
  for (const ProfileSample& sample : samples) {
    values.push_back(static_cast<double>(sample.memory()));
  }
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() * 9 / 10);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

std::optional<double> slope_a_minute(SampleSpan samples) {
  std::vector<TimedValue> points;
  points.reserve(samples.size());
  for (const ProfileSample& sample : samples) {
    points.push_back({sample.seconds, static_cast<double>(sample.memory())});
  }
  const auto slope = median_slope(points);
  return slope ? std::optional(*slope * 60) : std::nullopt;
}

// A change observed for less than a minute is reported as it was, not extrapolated to a minute.
std::string change_words(SampleSpan samples, double peak) {
  const double seconds = samples.back().seconds - samples.front().seconds;
  const auto slope = slope_a_minute(samples);
  std::string words = slope_words(slope, seconds, static_cast<std::uint64_t>(peak));
  if (!slope || words == "flat" || seconds >= 60) return words;
  return (*slope > 0 ? "rose by " : "fell by ") + bytes_words(*slope * seconds / 60) + " in " +
         time_words(seconds);
}

}  // namespace

std::string slope_words(std::optional<double> bytes_per_minute, double seconds,
                        std::uint64_t peak) {
  if (!bytes_per_minute) return "too short to tell";
  const double change = std::abs(*bytes_per_minute) * seconds / 60;
  const bool too_small = seconds < 60 && change < std::max(kMiB, 0.002 * double(peak));
  if (std::abs(*bytes_per_minute) < kFlatPerMinute || too_small) return "flat";
  return (*bytes_per_minute > 0 ? "+" : "-") + bytes_words(*bytes_per_minute) + "/min";
}

std::size_t climb_end(const std::vector<ProfileSample>& samples) {
  if (samples.empty()) return 0;
  const double start = static_cast<double>(samples.front().memory());
  const double level = usual_level(samples);
  if (level - start <= std::max(kMiB, kLeastClimb * level)) return 0;
  const double goal = start + kClimbed * (level - start);
  const auto end = std::ranges::find_if(samples, [&](const ProfileSample& sample) {
    return static_cast<double>(sample.memory()) >= goal;
  });
  const double first = samples.front().seconds, last = samples.back().seconds;
  // The rest must be long enough for a slope: a short stop at the end is not the end of a rise.
  if (samples.end() - end < static_cast<std::ptrdiff_t>(kFewestSamplesForSlope)) return 0;
  if (last - end->seconds < kShortestSecondsForSlope) return 0;
  if (end == samples.begin() || end->seconds - first > kClimbEnds * (last - first)) return 0;
  // If memory goes on rising as before, the climb has not ended.
  const double climbing = (level - start) / (end->seconds - first);
  const auto after = slope_a_minute(SampleSpan(end, samples.end()));
  if (!after || *after / 60 > kStillClimbing * climbing) return 0;
  return static_cast<std::size_t>(end - samples.begin());
}

std::string trend_of(const std::vector<ProfileSample>& samples) {
  if (samples.size() < kFewestSamplesForSlope) return "too short to tell";
  const double first = samples.front().seconds;
  if (samples.back().seconds - first < kShortestSecondsForSlope) return "too short to tell";
  const double start = static_cast<double>(samples.front().memory());
  const double level = usual_level(samples);
  const std::size_t end = climb_end(samples);
  std::string after = change_words(SampleSpan(samples).subspan(end), level);
  if (end == 0) return after;
  return "climbed " + bytes_words(level - start) + " in the first " +
         time_words(samples[end].seconds - first) + ", then " + after;
}

std::vector<LimitVerdict> limits_of(const ProfileSummary& summary) {
  if (summary.peak_memory == 0) return {};
  const std::string rss = format_size(summary.peak_rss);
  const std::string memory = format_size(summary.peak_memory);
  const std::string kept = format_size(summary.peak_unreclaimable);
  const bool file = summary.file_at_peak > 0;
  return {
      {"RSS limit", "Slurm, PBS, LSF and others that add up the RSS of processes", summary.peak_rss,
       "ends the job below " + rss +
           ": mapped file pages count, and a page of several processes counts for each"},
      {"cgroup limit", "Docker, systemd, Kubernetes limits.memory", summary.peak_unreclaimable,
       "ends the job below " + kept +
           (file ? ": it takes file pages back first, and between that and " + memory +
                       " the job is slower, as it reads them again"
                 : "")},
      {"node eviction", "Kubernetes, by working set", summary.peak_memory,
       "may evict the job on a node with less than " + memory +
           " to spare: file pages in recent use count"},
  };
}

std::string memory_verdict(const ProfileSummary& summary, std::optional<std::uint64_t> budget) {
  const std::string reached = "reached " + format_size(summary.peak_memory) +
                              (summary.slope_memory ? ": " + summary.trend : "") + ".";
  if (!budget) return "Memory " + reached;
  const std::string limit = format_size(*budget);
  if (summary.peak_memory <= *budget) {
    return "Memory stayed within the budget of " + limit + ". It " + reached;
  }
  return "Memory exceeded the budget of " + limit + " for " +
         time_words(summary.seconds_over_budget) + ". It " + reached;
}

std::string reclaimable_words(const ProfileSummary& summary) {
  if (summary.peak_memory == 0) return "It ended before it was measured.";
  const std::uint64_t rest = summary.peak_memory - summary.file_at_peak;
  return format_size(summary.file_at_peak) +
         " of it are file pages, which the kernel can take back; " + format_size(rest) +
         " are the program's own.";
}

}  // namespace evenkeel
