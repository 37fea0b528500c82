#include "guard/evictor.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <system_error>
#include <utility>

#include "base/thread.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr Seconds kMakeWay{0.0002};  // time for a waiting turn to begin

// Asks for short turns on the CPU, so that they come soon even where every core is busy
// (Linux 6.12; older kernels refuse or take no notice).
void ask_for_short_turns() {
  if (::sched_getscheduler(0) != SCHED_OTHER) return;  // someone chose another policy
  struct Attributes {                                  // sched_attr; libc has no name for it
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime, deadline, period;
  } attributes{};
  attributes.size = sizeof attributes;
  attributes.policy = SCHED_OTHER;
  attributes.nice = ::getpriority(PRIO_PROCESS, 0);
  attributes.runtime = 100'000;  // nanoseconds, the least there is
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

double thread_cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

class Evictor::Turn {
 public:
  explicit Turn(Evictor& governor) : lock_(governor.mutex_, std::defer_lock) {
    ++governor.waiting_;
    lock_.lock();
    --governor.waiting_;
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

Evictor::Evictor(const Options& options, std::unique_ptr<ActivitySource> signs)
    : options_(options), lines_(options.budget), sign_source_(std::move(signs)) {
  report_.budget = options.budget;
}

Evictor::~Evictor() {
  std::lock_guard life(lifecycle_);
  stop();
  for (const auto& file : watched_) {
    while (!file->mappings().empty()) file->remove(file->mappings().front()->key());
  }
}

void Evictor::add(std::unique_ptr<GuardedMapping> mapping, Fd fd, const Prepare& prepare) {
  std::lock_guard life(lifecycle_);
  {
    Turn turn(*this);
    hold(std::move(mapping), std::move(fd), prepare);
  }
  wake_.notify_all();
  if (!thread_.joinable()) start();
}

bool Evictor::add_known(std::unique_ptr<GuardedMapping>& mapping, std::uint64_t device,
                        std::uint64_t inode) {
  {
    Turn turn(*this);
    GuardedFile* const file = find(device, inode);
    if (file == nullptr) return false;
    drop(mapping->key());
    add_to(*file, std::move(mapping));
  }
  wake_.notify_all();
  return true;
}

// While all fits, the governor sleeps.
void Evictor::add_to(GuardedFile& file, std::unique_ptr<GuardedMapping> mapping) {
  const bool fitted = fits();
  file.add(std::move(mapping));
  if (fitted && !fits()) changed_ = true;
}

bool Evictor::remove(std::uint64_t key) {
  std::lock_guard life(lifecycle_);
  {
    Turn turn(*this);
    if (!drop(key)) return false;
    if (!options_.remember) forget_unmapped();
    if (!watched_.empty()) return true;
  }
  stop();
  return true;
}

void Evictor::hold(std::unique_ptr<GuardedMapping> mapping, Fd fd, const Prepare& prepare) {
  struct stat status;
  if (sys::fstat(fd.get(), &status) != 0) throw Error::system("guard", errno, mapping->name());
  drop(mapping->key());  // what was here before has been unmapped without a word
  GuardedMapping& held = *mapping;
  GuardedFile* file = find(status.st_dev, status.st_ino);
  if (file != nullptr) {
    add_to(*file, std::move(mapping));
  } else {
    watched_.push_back(std::make_unique<GuardedFile>(std::move(fd), options_, std::move(mapping)));
    file = watched_.back().get();
    if (prepare) prepare(*file);
    if (!file->limitation().empty()) note_failure(file->limitation());
    changed_ = true;
    stuck_until_ = {};
  }
  if (!options_.remember) forget_unmapped();
  if (!file->uncounted()) return;
  if (std::ranges::count_if(watched_, &GuardedFile::uncounted) == 1 &&
      file->mappings().size() == 1) {
    at_release_ = sign_source_->read();
  }
  AccessSample sample;
  held.count_resident(held.range(), sample);
  resident_at_add_ += sample.resident * sys::page_size();
}

GuardedFile* Evictor::find(std::uint64_t device, std::uint64_t inode) const {
  for (const auto& file : watched_) {
    if (file->is(device, inode)) return file.get();
  }
  return nullptr;
}

bool Evictor::drop(std::uint64_t key) {
  return std::ranges::any_of(watched_, [&](const auto& file) { return file->remove(key); });
}

// Files that nobody maps any more: all, or, where they are remembered, those of which nothing is
// left that could be released.
void Evictor::forget_unmapped() {
  const std::size_t before = watched_.size();
  std::erase_if(watched_, [this](const auto& file) {
    if (!file->mappings().empty()) return false;
    return !options_.remember || !file->counted() || file->segments().cached() == 0 ||
           file->deleted();
  });
  if (watched_.size() == before) return;
  count();
  changed_ = true;
}

GuardReport Evictor::report() {
  Turn turn(*this);
  look();
  report_.mappings = 0;
  for (const auto& file : watched_) report_.mappings += file->mappings().size();
  return report_;
}

void Evictor::start() {
  stopping_ = false;
  last_ = at_look_ = at_sample_ = sign_source_->read();
  looked_at_ = {};
  active_at_ = sampled_at_ = Clock::now();
  try {
    thread_ = start_thread([this] { run(); });
  } catch (const std::system_error& error) {
    Turn turn(*this);
    watched_.clear();
    throw Error::system("guard", error.code().value(), "its thread cannot be started");
  }
}

void Evictor::stop() {
  if (!thread_.joinable()) return;
  {
    Turn turn(*this);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  thread_ = {};
}

// Memory for the books themselves may be short: then again later.
Seconds Evictor::tick_safely() noexcept {
  try {
    return tick();
  } catch (...) {
    return Seconds(0.1);
  }
}

void Evictor::run() noexcept {
  ask_for_short_turns();
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const double cpu_before = thread_cpu_seconds();
    Seconds sleep = tick_safely();
    changed_ = false;
    report_.cpu_seconds += thread_cpu_seconds() - cpu_before;
    if (waiting_ != 0) sleep = std::max(sleep, kMakeWay);
    wake_.wait_until(lock, Clock::now() + std::chrono::duration_cast<Clock::duration>(sleep),
                     [this] { return stopping_ || changed_; });
  }
}

}  // namespace evenkeel
