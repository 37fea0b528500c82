// What the governor does when it wakes.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "guard/evictor.h"

namespace evenkeel {
namespace {

constexpr Seconds kAsleep{3600};     // until something changes
constexpr Seconds kUntilDeleted{1};  // a file that is held open keeps its place on the disk
constexpr Seconds kSlice{0.005};     // of releasing, before others get a turn
// Looking again takes so many times what the last look took: a twentieth or a hundredth of a core.
constexpr double kInHaste = 20, kAtLeisure = 100;
constexpr Seconds kWhileJudging{0.001};
constexpr Seconds kJudgedOver{1}, kStaysActive{1};

}  // namespace

bool Evictor::fits() const {
  std::uint64_t sum = 0;
  for (const auto& one : watched_) sum += one->length();
  return sum <= lines_.budget;
}

std::uint64_t Evictor::uncounted(const Activity& signs) const {
  if (std::ranges::none_of(watched_, &GuardedFile::uncounted)) return 0;
  const std::uint64_t grown =
      options_.keep_cache ? growth(at_release_.mapped, signs.mapped) : growth(at_release_, signs);
  return resident_at_add_ + grown;
}

Seconds Evictor::tick() {
  ++report_.ticks;
  if (options_.remember) forget_unmapped();
  if (fits()) {  // whatever the program does, there is nothing to do
    return options_.remember ? kUntilDeleted : kAsleep;
  }
  const Activity signs = sign_source_->read();
  const Clock::time_point now = Clock::now();
  if (signs.faults != last_.faults || signs.read_bytes != last_.read_bytes) active_at_ = now;
  const bool active = now - active_at_ < kStaysActive;
  last_ = signs;
  if (now - sampled_at_ > kJudgedOver && too_few_faults(signs)) {  // old ones say nothing of today
    at_sample_ = signs;
    sampled_at_ = now;
  }
  const std::uint64_t elsewhere = uncounted(signs);
  std::uint64_t estimate = report_.cached + elsewhere;
  if (std::ranges::any_of(watched_, &GuardedFile::counted)) estimate += growth(at_look_, signs);
  if (look_is_due(signs, estimate, active)) {
    look();
    consider_access(signs);
    estimate = report_.cached + elsewhere;
    releasing_ |= estimate >= lines_.trigger;
  }
  if (elsewhere != 0) report_.peak_cached = std::max(report_.peak_cached, estimate);
  if (releasing_ || estimate >= lines_.trigger) {
    if (elsewhere * 2 >= estimate) return release_uncounted(signs);
    if (releasing_) return release();
  }
  const Seconds sleep = time_to_sleep(lines_, estimate, active);
  const bool judging =
      options_.access == GuardAccess::kAuto && signs.major_faults != at_sample_.major_faults;
  return judging ? std::min(sleep, std::max(kWhileJudging, kInHaste * look_took_)) : sleep;
}

// Looking costs time where many small pages are cached, so it is done when signs say that the line
// may be near, when access has to be judged, and otherwise for a hundredth of the time at most.
bool Evictor::look_is_due(const Activity& signs, std::uint64_t estimate, bool active) const {
  const Clock::time_point now = Clock::now();
  if (now < stuck_until_) return false;
  if (changed_ || looked_at_ == Clock::time_point{}) return true;
  const Seconds since = now - looked_at_;
  const bool affordable = since >= kAtLeisure * look_took_;
  const bool soon = since >= kInHaste * look_took_;
  const std::uint64_t claimed = growth(at_look_, signs);
  if (estimate >= lines_.trigger) {
    const auto trusted = static_cast<std::uint64_t>(trust_ * static_cast<double>(claimed));
    if (soon || report_.cached + trusted >= lines_.trigger) return true;
  }
  // With readahead on each fault is expensive, so it is judged soon.
  if (options_.access == GuardAccess::kAuto && !too_few_faults(signs) &&
      since >= patience() * look_took_) {
    return true;
  }
  if (affordable && claimed >= lines_.budget / 16) return true;
  return active && affordable && since >= Seconds(0.25);
}

void Evictor::look() {
  const Clock::time_point begin = Clock::now();
  const Activity before = std::exchange(at_look_, sign_source_->read());
  const std::uint64_t cached_before = report_.cached;
  ++report_.looks;
  for (const auto& one : watched_) {
    if (one->counted()) one->look(report_.looks);
  }
  count();
  // A program that reads other files, too, claims growth that is not there.
  const std::uint64_t claimed = growth(before, at_look_);
  if (claimed > lines_.budget / 64) {
    const bool real = growth(cached_before, report_.cached) >= claimed / 4;
    trust_ = real ? 1 : std::max(trust_ / 2, 1.0 / 16);
  }
  looked_at_ = Clock::now();
  look_took_ = looked_at_ - begin;
}

void Evictor::count() {
  report_.cached = 0;
  for (const auto& one : watched_) report_.cached += one->segments().cached();
  report_.peak_cached = std::max(report_.peak_cached, report_.cached);
}

// Filled parts of all mappings, the oldest first.
std::vector<Evictor::Candidate> Evictor::candidates() const {
  std::vector<Candidate> found;
  for (const auto& one : watched_) {
    for (std::size_t part = 0; one->counted() && part < one->segments().size(); ++part) {
      if (one->segments()[part].cached != 0) found.push_back({one.get(), part});
    }
  }
  std::ranges::stable_sort(found, {}, [](const Candidate& one) { return one.filled().since; });
  return found;
}

// The disk may write what comes up while it is still being looked at.
void Evictor::start_writing(const std::vector<Candidate>& oldest) const {
  std::uint64_t to_go = growth(lines_.target, report_.cached);
  for (const Candidate& one : oldest) {
    one.file->start_writing(one.part);
    if (one.filled().cached >= to_go) return;
    to_go -= one.filled().cached;
  }
}

void Evictor::release_part(const Candidate& one) {
  const std::uint64_t held = one.filled().cached;
  if (const int error = one.file->release(one.part, report_.looks); error != 0) {
    note_failure(one.file->name() + ": pages are not released: " + std::strerror(error));
  }
  const std::uint64_t left = one.filled().cached;
  report_.cached = report_.cached - held + left;
  report_.bytes_released += growth(left, held);
}

Seconds Evictor::release() {
  forget_lost();
  const Clock::time_point begin = Clock::now();
  const std::vector<Candidate> oldest = candidates();
  start_writing(oldest);
  std::size_t tried = 0;
  while (tried < oldest.size() && report_.cached > lines_.target && Clock::now() - begin < kSlice) {
    release_part(oldest[tried++]);
  }
  // What the program mapped meanwhile is not known; what it read still counts as growth.
  at_look_.mapped = std::min(at_look_.mapped, sign_source_->read().mapped);
  const bool over = report_.cached > lines_.trigger;
  if (!over) stuck_for_ = Seconds(0);
  if (over && tried == oldest.size()) note_stuck();
  releasing_ = tried < oldest.size() && report_.cached > lines_.target;
  return releasing_ ? Seconds(0) : time_to_sleep(lines_, report_.cached, true);
}

// Everything was tried and the line is still crossed. Not again at once: it would take a core.
void Evictor::note_stuck() {
  constexpr Seconds kMost{1}, kWorthTelling{0.1};  // pages on their way from the disk stay, too
  stuck_for_ = std::clamp(stuck_for_ * 2, Seconds(0.01), kMost);
  stuck_until_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(stuck_for_);
  if (stuck_for_ < kWorthTelling) return;
  note_failure(
      "pages stay in the page cache although released: other processes map them, they are locked, "
      "or they are dirty and cannot be written");
}

Seconds Evictor::release_uncounted(const Activity& signs) {
  forget_lost();
  report_.bytes_released += uncounted(signs);
  for (const auto& one : watched_) {
    const int error = one->uncounted() ? one->release_all() : 0;
    if (error != 0) {
      note_failure(one->name() + ": pages are not released: " + std::strerror(error));
    }
  }
  resident_at_add_ = 0;
  releasing_ = false;
  at_release_ = at_sample_ = sign_source_->read();
  return time_to_sleep(lines_, 0, true);
}

bool Evictor::too_few_faults(const Activity& signs) const {
  constexpr std::uint64_t kEnough = 3;
  return signs.major_faults - at_sample_.major_faults < kEnough;
}

double Evictor::patience() const {
  return std::ranges::all_of(watched_, &GuardedFile::random) ? kAtLeisure : kInHaste;
}

void Evictor::consider_access(const Activity& signs) {
  if (options_.access != GuardAccess::kAuto) return;
  const Clock::time_point begin = Clock::now();
  if (too_few_faults(signs) || begin - sampled_at_ < patience() * sample_took_) return;
  forget_lost();
  for (const auto& one : watched_) {
    if (one->counted() || one->uncounted()) switch_access(*one, signs);
  }
  at_sample_ = signs;
  sampled_at_ = Clock::now();
  sample_took_ = sampled_at_ - begin;
}

// Where page cache or resident pages of the mapping are not told: what the process fetched and
// mapped, a run for each fault that waited for the disk.
AccessSample Evictor::sample_signs(const Activity& signs) const {
  constexpr std::uint64_t kFaultMaps = 32;  // pages: its neighbours, twice for rows on an edge
  const std::uint64_t page = sys::page_size();
  AccessSample sample;
  sample.cached = growth(at_sample_.read_bytes, signs.read_bytes) / page;
  sample.resident = growth(at_sample_.mapped, signs.mapped) / page;
  sample.runs = signs.major_faults - at_sample_.major_faults;
  if (sample.resident <= std::max(kFaultMaps * sample.runs, sample.cached / 8)) {
    sample.short_runs = sample.runs;
  } else {
    sample.long_pages = sample.resident;
  }
  return sample;
}

void Evictor::switch_access(GuardedFile& one, const Activity& signs) {
  std::optional<AccessSample> seen;
  if (one.counted() || one.random()) seen = one.sample();
  const AccessSample sample = seen ? *seen : one.random() ? AccessSample{} : sample_signs(signs);
  const bool random = reads_at_random(one.random(), sample, one.returns());
  if (random == one.random()) return;
  one.set_random(random);
  ++(random ? report_.switches_to_random : report_.switches_to_readahead);
  if (!random || !one.counted()) return;
  // What readahead fetched for nothing; and what is fetched from now on has been touched.
  for (std::size_t part = 0; part < one.segments().size(); ++part) {
    if (one.segments()[part].cached != 0) release_part({&one, part});
  }
}

void Evictor::forget_lost() {
  for (const auto& file : watched_) {
    file->forget_lost([this](const GuardedMapping& lost) {
      if (options_.remember) return;  // others unmap as they like
      note_failure(lost.name() + " is gone or changed, without remove(): no longer governed");
    });
  }
  forget_unmapped();
  count();
}

void Evictor::note_failure(const std::string& what) {
  constexpr std::size_t kMost = 64;
  if (report_.failures.size() >= kMost || std::ranges::count(report_.failures, what) != 0) return;
  report_.failures.push_back(what);
}

}  // namespace evenkeel
