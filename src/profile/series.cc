#include <algorithm>
#include <utility>

#include "evenkeel/profile.h"
#include "profile/sample_fields.h"

namespace evenkeel {
namespace {

std::uint64_t larger(std::uint64_t a, std::uint64_t b) {
  if (a == ProfileSample::kUnknown) return b;
  if (b == ProfileSample::kUnknown) return a;
  return std::max(a, b);
}

void merge(ProfileSample& sample, const ProfileSample& later) {
  for (const SampleField& size : kSampleSizes) {
    sample.*size.value = larger(sample.*size.value, later.*size.value);
  }
  for (const SampleField& counter : kSampleCounters) {
    sample.*counter.value = later.*counter.value;
  }
  for (const SampleFlag& flag : kSampleFlags) {
    sample.*flag.value = sample.*flag.value || later.*flag.value;
  }
  sample.seconds = later.seconds;
  sample.cpu_seconds = later.cpu_seconds;
  sample.processes = std::max(sample.processes, later.processes);
}

void merge_neighbours(std::vector<ProfileSample>& samples) {
  for (std::size_t i = 0; i < samples.size() / 2; ++i) {
    ProfileSample both = samples[2 * i];
    merge(both, samples[2 * i + 1]);
    samples[i] = both;
  }
  samples.resize(samples.size() / 2);
}

}  // namespace

std::uint64_t ProfileSample::memory() const {
  return anon + shmem + (cache == kUnknown ? file : std::max(file, cache));
}

void ProfileSeries::add(const ProfileSample& sample) {
  static_assert(kMost % 2 == 0);
  if (!samples_.empty() && in_last_ < together_) {
    merge(samples_.back(), sample);
    ++in_last_;
    return;
  }
  if (samples_.size() == kMost) {
    merge_neighbours(samples_);
    together_ *= 2;
  }
  samples_.push_back(sample);
  in_last_ = 1;
}

std::vector<ProfileSample> ProfileSeries::take() {
  together_ = 1;
  in_last_ = 0;
  return std::exchange(samples_, {});
}

}  // namespace evenkeel
