#include "guard/evictor.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/thread.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr Seconds kForCallers{0.0002};  // a pause that lets a waiting caller take the lock
constexpr Seconds kUntilChange{3600};   // add() and remove() end the wait
constexpr Seconds kCheckForDeleted{1};  // an open descriptor keeps a deleted file on the disk
constexpr Seconds kSlice{0.005};        // time to release before callers and other evictors run
constexpr Seconds kLeastWriteWait{0.001};
constexpr Seconds kJudging{0.001};
constexpr Seconds kStaysActive{1};
// Work is repeated after this many times its cost, so it takes a twentieth or a hundredth of a
// core.
constexpr double kUrgent = 20, kRelaxed = 100;

}  // namespace

class SCOPED_CAPABILITY Evictor::CallerLock {
 public:
  explicit CallerLock(Evictor& evictor) ACQUIRE(evictor.mutex_) : mutex_(evictor.mutex_) {
    ++evictor.waiting_;
    mutex_.lock();
    --evictor.waiting_;
  }
  ~CallerLock() RELEASE() { mutex_.unlock(); }
  CallerLock(const CallerLock&) = delete;
  CallerLock& operator=(const CallerLock&) = delete;

 private:
  Mutex& mutex_;
};

Evictor::Evictor(const Options& options, std::unique_ptr<ActivitySource> activity)
    : options_(options),
      thresholds_(options.budget),
      thread_(EvictorThread::of_this_process()),
      activity_(std::move(activity)) {
  report_.budget = options.budget;
}

Evictor::~Evictor() {
  MutexLock life(lifecycle_);
  if (running_) thread_.remove(*this);
  CallerLock lock(*this);
  for (const auto& [id, file] : files_) {
    while (!file->mappings().empty()) file->remove(file->mappings().front()->key());
  }
}

void Evictor::add(std::unique_ptr<GuardedMapping> mapping, Fd fd, const Prepare& prepare) {
  MutexLock life(lifecycle_);
  {
    CallerLock lock(*this);
    insert(std::move(mapping), std::move(fd), prepare);
    if (!running_) {
      last_ = at_look_ = activity_->read();
      judge_.start(last_, report_.bytes_fetched);
      looked_at_ = {};
      active_at_ = Clock::now();
    }
  }
  if (running_) return thread_.wake(*this);
  try {
    thread_.add(*this);
    running_ = true;
  } catch (const Error&) {
    CallerLock lock(*this);
    file_of_mapping_.clear();
    files_.clear();
    files_changed();
    throw;
  }
}

bool Evictor::add_known(std::unique_ptr<GuardedMapping>& mapping, std::uint64_t device,
                        std::uint64_t inode) {
  {
    CallerLock lock(*this);
    GuardedFile* const file = find(device, inode);
    if (file == nullptr) return false;
    if (!file->reopen()) {
      // It was renamed, or deleted and the inode belongs to another file by now.
      if (file->mappings().empty()) forget(device, inode);
      return false;
    }
    erase(mapping->key());
    add_to(*file, std::move(mapping));
    if (!changed_) return true;
  }
  thread_.wake(*this);
  return true;
}

bool Evictor::remove(std::uint64_t key) {
  MutexLock life(lifecycle_);
  {
    CallerLock lock(*this);
    if (!erase(key)) return false;
    if (!options_.remember) forget_unmapped();
    if (!files_.empty()) return true;
  }
  if (running_) thread_.remove(*this);
  running_ = false;
  return true;
}

GuardReport Evictor::report() {
  CallerLock lock(*this);
  look();
  report_.mappings = file_of_mapping_.size();
  GuardReport report = report_;
  report.guarded_peak = std::max(peak_settled_, unsettled_);
  report.failures = failures();
  return report;
}

void Evictor::insert(std::unique_ptr<GuardedMapping> mapping, Fd fd, const Prepare& prepare) {
  struct stat status;
  const int descriptor = fd ? fd.get() : mapping->descriptor();
  if (const auto id = mapping->file_id(); id && descriptor < 0) {
    status.st_dev = id->device;
    status.st_ino = id->inode;
  } else if (sys::fstat(descriptor, &status) != 0) {
    throw Error::system("guard", errno, mapping->name());
  }
  // A known key: that mapping was unmapped without remove().
  const bool replaced = erase(mapping->key());
  const GuardedMapping& added = *mapping;
  GuardedFile* file = find(status.st_dev, status.st_ino);
  if (file != nullptr) {
    if (fd) file->adopt(std::move(fd));
    add_to(*file, std::move(mapping));
  } else {
    auto fresh = std::make_unique<GuardedFile>(std::move(fd), options_, std::move(mapping));
    file = fresh.get();
    if (prepare) prepare(*file);
    files_[{status.st_dev, status.st_ino}] = std::move(fresh);
    file_of_mapping_[added.key()] = file;
    if (!file->limitation().empty()) note_failure(file->limitation());
    stuck_until_ = {};
    settled_ = false;
    include(*file);
    changed_ = true;
  }
  if (replaced && !options_.remember) forget_unmapped();
  if (file->uncounted()) count_resident_of_new(*file, added);
}

void Evictor::add_to(GuardedFile& file, std::unique_ptr<GuardedMapping> mapping) {
  const bool fitted = fits();
  file_of_mapping_[mapping->key()] = &file;
  file_bytes_ -= file.length();
  file.add(std::move(mapping));
  include(file);
  if (fitted && !fits()) changed_ = true;  // while all files fit, the evictor sleeps
}

// Pages of uncounted files that were mapped before the file was added.
void Evictor::count_resident_of_new(GuardedFile& file, const GuardedMapping& mapping) {
  const auto uncounted = [](const auto& one) { return one.second->uncounted(); };
  if (file.mappings().size() == 1 && std::ranges::count_if(files_, uncounted) == 1) {
    at_release_ = activity_->read();
  }
  AccessSample sample;
  mapping.count_resident(mapping.range(), sample);
  resident_at_add_ += sample.resident * sys::page_size();
}

GuardedFile* Evictor::find(std::uint64_t device, std::uint64_t inode) const {
  const auto place = files_.find({device, inode});
  return place == files_.end() ? nullptr : place->second.get();
}

bool Evictor::erase(std::uint64_t key) {
  const auto place = file_of_mapping_.find(key);
  if (place == file_of_mapping_.end()) return false;
  place->second->remove(key);
  file_of_mapping_.erase(place);
  return true;
}

// A file may be mapped, read and unmapped between two looks. Files that are known to have cached
// pages wait for the next look.
void Evictor::look_at_unmapped() {
  const std::uint64_t now = report_.looks + 1;
  for (const auto& [id, file] : files_) {
    if (!file->mappings().empty() || !file->counted() || file->cache_map().cached() != 0) continue;
    file->look(now);
    report_.looks = now;
  }
  if (report_.looks == now) sum_up();
}

// Forgets files without mappings. With `remember`, forgets only files of which nothing is left to
// release.
void Evictor::forget_unmapped() {
  forgot_at_ = Clock::now();
  if (options_.remember) look_at_unmapped();
  std::uint64_t fetched = 0;
  const std::size_t forgotten = std::erase_if(files_, [&](const auto& one) {
    GuardedFile& file = *one.second;
    if (!file.mappings().empty()) return false;
    if (options_.remember && file.counted() && file.cache_map().cached() != 0 && !file.deleted()) {
      return false;
    }
    fetched += file.cache_map().fetched();
    file.forgotten();
    return true;
  });
  if (forgotten == 0) return;
  forgotten_fetched_ += fetched;
  sum_up();
  files_changed();
}

// For a file without mappings. What is cached of it counts as new if it is added again.
void Evictor::forget(std::uint64_t device, std::uint64_t inode) {
  const auto place = files_.find({device, inode});
  forgotten_fetched_ += place->second->cache_map().fetched();
  place->second->forgotten();
  files_.erase(place);
  sum_up();
  files_changed();
}

void Evictor::forget_lost() {
  for (const auto& [id, file] : files_) {
    file->forget_lost([this](const GuardedMapping& lost) NO_THREAD_SAFETY_ANALYSIS {
      file_of_mapping_.erase(lost.key());
      if (options_.remember) return;  // other processes unmap without notice
      note_failure(lost.name() +
                   " was unmapped or replaced without remove(): it is no longer guarded");
    });
  }
  forget_unmapped();
  sum_up();
}

void Evictor::include(const GuardedFile& file) {
  file_bytes_ += file.length();
  any_counted_ |= file.counted();
  any_uncounted_ |= file.uncounted();
  if (file.counted()) readahead_ = std::max(readahead_, file.readahead());
  report_.file_bytes = std::max(report_.file_bytes, file_bytes_);
}

void Evictor::files_changed() {
  changed_ = true;
  file_bytes_ = readahead_ = 0;
  any_counted_ = any_uncounted_ = false;
  for (const auto& [id, file] : files_) include(*file);
}

// step() may fail to allocate memory for its tables. The next run tries again.
Seconds Evictor::run() noexcept {
  MutexLock lock(mutex_);
  const Seconds before = thread_cpu_time();
  Seconds wait{0.1};
  try {
    wait = step();
  } catch (...) {
  }
  changed_ = false;
  report_.cpu_seconds += (thread_cpu_time() - before).count();
  return waiting_ != 0 ? std::max(wait, kForCallers) : wait;
}

// An upper bound for the growth of the guarded files since the last look.
std::uint64_t Evictor::claimed_growth(const Activity& activity) const {
  return any_counted_ ? most_growth(at_look_, activity, readahead_) : 0;
}

std::uint64_t Evictor::uncounted_bytes(const Activity& activity) const {
  if (!any_uncounted_) return 0;
  const std::uint64_t grown = options_.keep_cache ? growth(at_release_.mapped, activity.mapped)
                                                  : growth(at_release_, activity);
  return resident_at_add_ + grown;
}

Seconds Evictor::step() {
  const Clock::time_point now = Clock::now();
  if (options_.remember && (changed_ || now - forgot_at_ >= kCheckForDeleted)) forget_unmapped();
  if (fits()) {
    if (!options_.remember) return kUntilChange;
    // Nothing has to be released. The looks are for the report.
    if (now - looked_at_ >= std::max(kCheckForDeleted, kRelaxed * look_cost_)) look();
    return kCheckForDeleted;
  }
  if (file_of_mapping_.size() != limited_for_) limit_readahead();
  const Seconds cpu_before = thread_cpu_time();
  const Activity activity = activity_->read();
  activity_cost_ = thread_cpu_time() - cpu_before;
  if (activity.faults != last_.faults || activity.read_bytes != last_.read_bytes) active_at_ = now;
  const bool active = now - active_at_ < kStaysActive;
  last_ = activity;
  judge_.forget_old(activity, report_.bytes_fetched);
  const std::uint64_t uncounted = uncounted_bytes(activity);
  std::uint64_t estimate = report_.cached + claimed_growth(activity) + uncounted;
  if (look_is_due(activity, estimate, active)) {
    look();
    judge_access(activity);
    estimate = report_.cached + uncounted;
    releasing_ |= estimate >= thresholds_.trigger;
  }
  if (any_uncounted_) note_peak(report_.cached + uncounted);
  if (releasing_ || estimate >= thresholds_.trigger) {
    if (uncounted * 2 >= estimate) return release_uncounted(activity);
    if (releasing_) return release();
  }
  Seconds wait = time_to_sleep(thresholds_, estimate, active);
  const bool judging = options_.access == GuardAccess::kAuto && judge_.any_faults(activity);
  if (judging) wait = std::min(wait, std::max(kJudging, kUrgent * look_cost_));
  return std::max(wait, kUrgent * activity_cost_);
}

// A look takes long if many small pages are cached. One is due when the counters show that the
// budget may be reached, when access has to be judged, and otherwise as often as a hundredth of a
// core allows.
bool Evictor::look_is_due(const Activity& activity, std::uint64_t estimate, bool active) const {
  const Clock::time_point now = Clock::now();
  if (now < stuck_until_) return false;
  if (changed_ || looked_at_ == Clock::time_point{}) return true;
  const Seconds since = now - looked_at_;
  const bool affordable = since >= kRelaxed * look_cost_;
  const std::uint64_t claimed = claimed_growth(activity);
  if (releasing_ && since < kUrgent * look_cost_) return false;  // the oldest parts are known
  if (estimate >= thresholds_.trigger) {
    const auto trusted = static_cast<std::uint64_t>(trust_ * static_cast<double>(claimed));
    if (since >= kUrgent * look_cost_ || report_.cached + trusted >= thresholds_.trigger) {
      return true;
    }
  }
  // With readahead on, each fault is expensive, so access is judged soon.
  if (options_.access == GuardAccess::kAuto && judge_.enough_faults(activity) &&
      since >= judging_interval() * look_cost_) {
    return true;
  }
  if (affordable && claimed >= thresholds_.budget / 16) return true;
  return active && affordable && since >= Seconds(0.25);
}

void Evictor::look() {
  const Seconds cpu_before = thread_cpu_time();
  const Activity now = activity_->read();
  const std::uint64_t claimed = claimed_growth(now), cached_before = report_.cached;
  at_look_ = now;
  ++report_.looks;
  for (const auto& [id, file] : files_) {
    if (file->counted()) file->look(report_.looks);
  }
  sum_up();
  if (any_uncounted_) {
    // The estimate may be too high. Files that fit the budget occupy at most their size.
    const std::uint64_t bytes = report_.cached + uncounted_bytes(now);
    note_peak(fits() ? std::min(bytes, file_bytes_) : bytes);
  }
  // Reading other files or allocating memory also raises the counters.
  if (claimed > thresholds_.budget / 64) {
    const bool real = growth(cached_before, report_.cached) >= claimed / 4;
    trust_ = real ? 1 : std::max(trust_ / 2, 1.0 / 16);
  }
  looked_at_ = Clock::now();
  look_cost_ = thread_cpu_time() - cpu_before;
}

void Evictor::sum_up() {
  report_.cached = 0;
  std::uint64_t fetched = forgotten_fetched_;
  for (const auto& [id, file] : files_) {
    report_.cached += file->cache_map().cached();
    fetched += file->cache_map().fetched();
  }
  report_.bytes_fetched = fetched;
  if (!any_uncounted_) note_peak(report_.cached);
}

void Evictor::note_peak(std::uint64_t bytes) {
  report_.peak_cached = std::max(report_.peak_cached, bytes);
  settled_ |= bytes <= thresholds_.budget;
  if (settled_) peak_settled_ = std::max(peak_settled_, bytes);
  unsettled_ = settled_ ? 0 : bytes;
}

std::vector<Evictor::Candidate> Evictor::oldest_first() const {
  std::vector<Candidate> found;
  for (const auto& [id, file] : files_) {
    for (std::size_t part = 0; file->counted() && part < file->cache_map().size(); ++part) {
      if (file->cache_map()[part].cached != 0) found.push_back({file.get(), part});
    }
  }
  std::ranges::stable_sort(found, {}, [](const Candidate& one) { return one.cache().since; });
  return found;
}

// All parts are started before any is waited for, so that processes release them at the same time.
// Parts that stay become newer than all others, except that those that wait for the disk are tried
// once more first. Returns how many became newer.
std::size_t Evictor::release_parts(std::span<const Candidate> parts) {
  std::size_t staying = 0;
  for (const Candidate& one : parts) {
    note_not_released(*one.file, one.file->start_release(one.part));
  }
  for (const Candidate& one : parts) {
    const std::uint64_t before = one.cache().cached;
    note_not_released(*one.file, one.file->finish_release(one.part, report_.looks + 1));
    const std::uint64_t left = one.cache().cached;
    report_.cached = report_.cached - before + left;
    report_.bytes_released += growth(left, before);
    if (left != 0 && !one.cache().writing) ++staying;
  }
  return staying;
}

// Releases the oldest parts until the target is reached. Dirty pages must be written first, and
// starting that may wait for the disk. So clean parts go first, also younger ones while the trigger
// is exceeded. Parts that are being written are tried again in the next step. If there is no time
// to try every part in one step, the next one goes on at once.
Seconds Evictor::release() {
  constexpr std::size_t kAtOnce = 16, kDirtyAtOnce = 4;  // parts
  forget_lost();
  const Clock::time_point begin = Clock::now();
  const auto in_time = [begin] { return Clock::now() - begin < kSlice; };
  const std::vector<Candidate> oldest = oldest_first();
  std::vector<Candidate> clean, dirty;
  bool any_clean = false;
  std::uint64_t due =
      growth(thresholds_.target, report_.cached);  // bytes to release from the oldest parts
  for (std::size_t next = 0; next == 0 || in_time();) {
    std::uint64_t after = report_.cached;
    clean.clear();
    for (; next < oldest.size() && clean.size() < kAtOnce; ++next) {
      if (after <= (due != 0 ? thresholds_.target : thresholds_.trigger)) break;
      const Candidate& one = oldest[next];
      if (one.cache().dirty == 0) {
        clean.push_back(one);
        after -= std::min(after, one.cache().cached);
      } else if (due != 0) {
        dirty.push_back(one);
      }
      due -= std::min(due, one.cache().cached);
    }
    if (clean.empty()) break;
    any_clean = true;
    stayed_ += release_parts(clean);
  }
  std::uint64_t writing = 0;  // bytes
  for (std::size_t i = 0; i < dirty.size() && (i == 0 || in_time()); i += kDirtyAtOnce) {
    const auto some = std::span(dirty).subspan(i, std::min(kDirtyAtOnce, dirty.size() - i));
    stayed_ += release_parts(some);
    for (const Candidate& one : some) writing += one.cache().dirty;
  }
  // Pages that the program mapped meanwhile are unknown. Pages that it read still count as growth.
  at_look_.mapped = std::min(at_look_.mapped, activity_->read().mapped);

  releasing_ = report_.cached > thresholds_.target;
  const bool over = report_.cached > thresholds_.trigger;
  if (!over) {
    stuck_for_ = Seconds(0);
    writing_since_ = {};
  }
  const std::size_t to_try = any_clean ? oldest.size() : dirty.size();
  if (releasing_ && !in_time() && stayed_ < to_try) return Seconds(0);
  stayed_ = 0;
  if (!releasing_) return time_to_sleep(thresholds_, report_.cached, true);
  if (writing != 0) return wait_for_disk(writing, Clock::now() - begin);
  if (over) note_stuck();
  releasing_ = false;
  return time_to_sleep(thresholds_, report_.cached, true);
}

// Everything left to release is being written. The wait grows with the cost of another attempt.
Seconds Evictor::wait_for_disk(std::uint64_t writing, Seconds took) {
  constexpr Seconds kReportAfter{0.5};
  const Clock::time_point now = Clock::now();
  if (writing_since_ == Clock::time_point{}) writing_since_ = now;
  if (now - writing_since_ > kReportAfter && writing > thresholds_.slack) {
    note_failure(
        "changed pages exceed the budget until they are written: the disk is slower than the "
        "program");
  }
  return std::max(kLeastWriteWait, 4 * took);
}

// Every part was tried, and the trigger is still exceeded. Each attempt waits longer than the last.
void Evictor::note_stuck() {
  // A short failure is normal: pages that are being read cannot be released.
  constexpr Seconds kMost{1}, kReportAfter{0.1};
  stuck_for_ = std::clamp(stuck_for_ * 2, Seconds(0.01), kMost);
  stuck_until_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(stuck_for_);
  if (stuck_for_ < kReportAfter) return;
  note_failure(
      "pages stay in the page cache after release: other processes map them, they are locked, "
      "or they are dirty and cannot be written");
}

Seconds Evictor::release_uncounted(const Activity& activity) {
  forget_lost();
  report_.bytes_released += uncounted_bytes(activity);
  for (const auto& [id, file] : files_) {
    if (file->uncounted()) note_not_released(*file, file->release_all());
  }
  resident_at_add_ = 0;
  releasing_ = false;
  stayed_ = 0;
  const Activity after = activity_->read();
  at_release_ = after;
  // Bytes read since the estimate may have arrived after the release. Count them for the next one.
  at_release_.read_bytes = std::min(activity.read_bytes, after.read_bytes);
  judge_.start(after, report_.bytes_fetched);
  return time_to_sleep(thresholds_, uncounted_bytes(after), true);
}

void Evictor::note_not_released(const GuardedFile& file, int error) {
  if (error != 0) note_failure(file.name() + ": pages are not released: " + std::strerror(error));
}

void Evictor::note_failure(const std::string& what) {
  constexpr std::size_t kMost = 64;
  if (report_.failures.size() >= kMost || std::ranges::count(report_.failures, what) != 0) return;
  report_.failures.push_back(what);
}

std::vector<std::string> Evictor::failures() const {
  std::vector<std::string> all = report_.failures;
  if (peak_settled_ > thresholds_.budget + thresholds_.slack) {
    all.push_back("the budget of " + format_size(thresholds_.budget) +
                  " was exceeded: " + format_size(peak_settled_) +
                  " were in memory at the peak; pages came faster than they could be released");
  }
  return all;
}

// Returns a multiple of the cost of judging.
double Evictor::judging_interval() const {
  const auto random = [](const auto& one) { return one.second->random(); };
  return std::ranges::all_of(files_, random) ? kRelaxed : kUrgent;
}

// Each mapping that is being read has up to two readahead windows in memory. If these alone would
// take half of the budget, the windows are made small, and stay small.
void Evictor::limit_readahead() {
  limited_for_ = file_of_mapping_.size();
  if (!options_.remember || options_.access != GuardAccess::kAuto) return;
  if (2 * readahead_ * file_of_mapping_.size() <= thresholds_.budget / 2) return;
  for (const auto& [id, file] : files_) {
    if (file->counted()) file->limit_readahead();
  }
}

void Evictor::judge_access(const Activity& activity) {
  if (options_.access != GuardAccess::kAuto || !judge_.enough_faults(activity)) return;
  if (judge_.since_start() < judging_interval() * judging_cost_) return;
  const Seconds cpu_before = thread_cpu_time();
  forget_lost();
  for (const auto& [id, file] : files_) {
    if (!file->counted() && !file->uncounted()) continue;
    if (judge_.judge(*file, activity, report_.bytes_fetched)) access_switched(*file);
  }
  judge_.start(activity, report_.bytes_fetched);
  judging_cost_ = thread_cpu_time() - cpu_before;
}

void Evictor::access_switched(GuardedFile& file) {
  files_changed();
  ++(file.random() ? report_.switches_to_random : report_.switches_to_readahead);
  if (!file.random() || !file.counted()) return;
  // Most pages that readahead fetched were not used. Pages that are fetched from now on will be.
  std::vector<Candidate> fetched;
  for (std::size_t part = 0; part < file.cache_map().size(); ++part) {
    if (file.cache_map()[part].cached != 0) fetched.push_back({&file, part});
  }
  release_parts(fetched);
}

}  // namespace evenkeel
