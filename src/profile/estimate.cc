#include "profile/estimate.h"

#include <algorithm>

namespace evenkeel {
namespace {

// `value` was measured in samples in which `measured` is true; `guide` is known in every sample.
template <class Guide>
void estimate(std::vector<ProfileSample>& samples, std::uint64_t ProfileSample::*value,
              bool ProfileSample::*measured, Guide guide) {
  const auto known = [&](std::size_t i) {
    return samples[i].*measured && samples[i].*value != ProfileSample::kUnknown;
  };
  // The difference between the value and its guide is interpolated between two measurements.
  const auto above = [&](std::size_t i) {
    return static_cast<double>(samples[i].*value) - static_cast<double>(guide(samples[i]));
  };
  std::size_t from = samples.size();  // the last measurement, or none
  for (std::size_t to = 0; to < samples.size(); ++to) {
    if (!known(to)) {
      if (samples[to].*measured) from = samples.size();
      continue;
    }
    if (from < to) {
      const auto [least, most] = std::minmax(samples[from].*value, samples[to].*value);
      const double seconds = samples[to].seconds - samples[from].seconds;
      for (std::size_t i = from + 1; i < to; ++i) {
        const double share =
            seconds > 0 ? (samples[i].seconds - samples[from].seconds) / seconds : 1;
        const double guess = above(from) + (above(to) - above(from)) * share +
                             static_cast<double>(guide(samples[i]));
        samples[i].*value = static_cast<std::uint64_t>(
            std::clamp(guess, static_cast<double>(least), static_cast<double>(most)));
      }
    }
    from = to;
  }
}

}  // namespace

void estimate_between(std::vector<ProfileSample>& samples) {
  estimate(samples, &ProfileSample::cache, &ProfileSample::cache_measured,
           [](const ProfileSample& s) { return s.file; });
  estimate(samples, &ProfileSample::pss, &ProfileSample::pss_measured,
           [](const ProfileSample& s) { return s.anon + s.file + s.shmem; });
}

}  // namespace evenkeel
