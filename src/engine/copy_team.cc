#include "engine/copy_team.h"

#include <algorithm>
#include <exception>

#include "base/thread.h"

namespace evenkeel {
namespace {

// A thread takes many calls at a time, so that threads do not contend for the counter, but few
// enough that every thread gets some.
constexpr std::size_t kMostAtATime = 16, kPartsOfThread = 8;

}  // namespace

CopyTeam::CopyTeam(std::size_t threads) {
  try {
    threads_.reserve(threads);  // push_back must not fail after a thread was started
    while (threads_.size() < threads) threads_.push_back(start_thread([this] { loop(); }));
  } catch (const std::exception&) {  // no thread, or no memory
    // With fewer threads, or none, the caller does more of the work itself.
  }
}

CopyTeam::~CopyTeam() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wanted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void CopyTeam::run(std::size_t count, std::size_t helpers,
                   const std::function<void(std::size_t)>& work) {
  helpers = std::min(helpers, threads_.size());
  const Task task = {
      &work, count,
      std::clamp<std::size_t>(count / (kPartsOfThread * (helpers + 1)), 1, kMostAtATime)};
  next_.store(0, std::memory_order_relaxed);
  {
    const MutexLock lock(mutex_);
    task_ = task;
    places_ = helpers;
  }
  for (std::size_t i = 0; i < helpers; ++i) wanted_.notify_one();
  take_part(task);
  const MutexLock lock(mutex_);
  places_ = 0;
  while (inside_ > 0) left_.wait(mutex_);
}

void CopyTeam::loop() {
  MutexLock lock(mutex_);
  for (;;) {
    while (places_ == 0 && !stopping_) wanted_.wait(mutex_);
    if (stopping_) return;
    --places_;
    ++inside_;
    const Task task = task_;
    lock.unlock();
    take_part(task);
    lock.lock();
    if (--inside_ == 0) left_.notify_one();
  }
}

void CopyTeam::take_part(const Task& task) {
  for (;;) {
    const std::size_t begin = next_.fetch_add(task.at_a_time, std::memory_order_relaxed);
    if (begin >= task.count) return;
    const std::size_t end = std::min(begin + task.at_a_time, task.count);
    for (std::size_t i = begin; i < end; ++i) (*task.work)(i);
  }
}

}  // namespace evenkeel
