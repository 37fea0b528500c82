#include "guard/access_judge.h"

#include <algorithm>
#include <optional>

#include "base/sys.h"

namespace evenkeel {

void AccessJudge::start(const Activity& activity, std::uint64_t fetched) {
  start_ = activity;
  fetched_at_start_ = fetched;
  started_at_ = Clock::now();
}

void AccessJudge::forget_old(const Activity& activity, std::uint64_t fetched) {
  constexpr Seconds kOld{1};
  if (since_start() > kOld && !enough_faults(activity)) start(activity, fetched);
}

bool AccessJudge::enough_faults(const Activity& activity) const {
  constexpr std::uint64_t kEnough = 3;
  return activity.major_faults - start_.major_faults >= kEnough;
}

bool AccessJudge::judge(GuardedFile& file, const Activity& activity, std::uint64_t fetched) const {
  std::optional<AccessSample> sample;
  if (file.counted() || file.random()) sample = file.sample();
  if (!sample) sample = file.random() ? AccessSample{} : sample_of_process(activity);
  const std::uint64_t read = growth(start_.read_bytes, activity.read_bytes);
  sample->from_disk = !file.counted() || read >= (fetched - fetched_at_start_) / 4;
  const bool random = reads_at_random(file.random(), *sample, file.returns());
  if (random == file.random()) return false;
  file.set_random(random);
  return true;
}

// An estimate for when the kernel does not report the page cache or the resident pages of the
// mapping: the bytes that the process fetched and mapped, with a run for each major fault.
AccessSample AccessJudge::sample_of_process(const Activity& activity) const {
  constexpr std::uint64_t kFaultMaps = 32;  // pages: 16 around a fault, twice for rows on an edge
  const std::uint64_t page = sys::page_size();
  AccessSample sample;
  sample.cached = growth(start_.read_bytes, activity.read_bytes) / page;
  sample.resident = growth(start_.mapped, activity.mapped) / page;
  sample.runs = activity.major_faults - start_.major_faults;
  if (sample.resident <= std::max(kFaultMaps * sample.runs, sample.cached / 8)) {
    sample.short_runs = sample.runs;
  } else {
    sample.long_pages = sample.resident;
  }
  return sample;
}

}  // namespace evenkeel
