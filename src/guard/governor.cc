#include "guard/governor.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
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

class Governor::Turn {
 public:
  explicit Turn(Governor& governor) : lock_(governor.mutex_, std::defer_lock) {
    ++governor.waiting_;
    lock_.lock();
    --governor.waiting_;
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

Governor::Governor(const GuardOptions& options) : options_(options), lines_(options.budget) {
  report_.budget = options.budget;
}

Governor::~Governor() {
  std::lock_guard life(lifecycle_);
  stop();
  for (const auto& one : watched_) {
    if (one->still_there()) one->restore_advice();
  }
}

void Governor::add(const GuardMapping& mapping) {
  std::lock_guard life(lifecycle_);
  {
    Turn turn(*this);
    auto one = std::make_unique<Watched>(mapping, options_, maps_);
    // What was here before has been unmapped without a word.
    std::erase_if(watched_, [&](const auto& old) { return old->address() == mapping.address; });
    if (!one->limitation().empty()) note_failure(one->limitation());
    if (one->uncounted()) {
      if (std::ranges::none_of(watched_, &Watched::uncounted)) at_release_ = sign_reader_.read();
      AccessSample sample;
      page_map_.count(one->range(), sample);
      resident_at_add_ += sample.resident * sys::page_size();
    }
    watched_.push_back(std::move(one));
    changed_ = true;
    stuck_until_ = {};
  }
  wake_.notify_all();
  if (!thread_.joinable()) start();
}

bool Governor::remove(const void* address) {
  std::lock_guard life(lifecycle_);
  {
    Turn turn(*this);
    const auto place = std::ranges::find(watched_, address, &Watched::address);
    if (place == watched_.end()) return false;
    if ((*place)->still_there()) (*place)->restore_advice();
    watched_.erase(place);
    count();
    changed_ = true;
    if (!watched_.empty()) return true;
  }
  stop();
  return true;
}

GuardReport Governor::report() {
  Turn turn(*this);
  look();
  report_.mappings = watched_.size();
  return report_;
}

void Governor::start() {
  stopping_ = false;
  last_ = at_look_ = at_sample_ = sign_reader_.read();
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

void Governor::stop() {
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
Seconds Governor::tick_safely() noexcept {
  try {
    return tick();
  } catch (...) {
    return Seconds(0.1);
  }
}

void Governor::run() noexcept {
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
