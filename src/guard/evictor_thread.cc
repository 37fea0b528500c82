#include "guard/evictor_thread.h"

#include <algorithm>
#include <memory>
#include <system_error>

#include "base/per_process.h"
#include "base/thread.h"
#include "evenkeel/error.h"

namespace evenkeel {
EvictorThread& EvictorThread::of_this_process() {
  // Never destroyed: guards may outlive static objects.
  static auto& threads =
      *new PerProcess<EvictorThread>([] { return std::make_unique<EvictorThread>(); });
  return threads.get();
}

void EvictorThread::add(BackgroundTask& task) {
  MutexLock life(lifecycle_);
  {
    MutexLock lock(mutex_);
    schedule(task, Clock::now());
    stopping_ = false;
  }
  changed_.notify_all();
  if (thread_.joinable()) return;
  try {
    thread_ = start_thread([this] { run_tasks(); });
  } catch (const std::system_error& error) {
    MutexLock lock(mutex_);
    unschedule(task);
    throw Error::system("guard", error.code().value(), "the evictor thread cannot be started");
  }
}

void EvictorThread::remove(BackgroundTask& task) {
  MutexLock life(lifecycle_);
  {
    MutexLock lock(mutex_);
    unschedule(task);
    if (running_ == &task) removed_ = true;
    while (running_ == &task) finished_.wait(mutex_);
    stopping_ = due_.empty() && running_ == nullptr;
    if (!stopping_) return;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  thread_ = {};
}

void EvictorThread::wake(BackgroundTask& task) {
  {
    MutexLock lock(mutex_);
    if (running_ == &task) {
      run_again_ = true;
    } else if (due_.contains(&task)) {
      schedule(task, Clock::now());
    }
  }
  changed_.notify_all();
}

void EvictorThread::schedule(BackgroundTask& task, Clock::time_point due) {
  unschedule(task);
  queue_.insert({due, &task});
  due_[&task] = due;
}

void EvictorThread::unschedule(BackgroundTask& task) {
  const auto place = due_.find(&task);
  if (place == due_.end()) return;
  queue_.erase({place->second, &task});
  due_.erase(place);
}

void EvictorThread::run_tasks() noexcept {
  ask_for_short_slices();
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (queue_.empty()) {
      changed_.wait(mutex_);
      continue;
    }
    const auto [due, task] = *queue_.begin();
    if (due > Clock::now()) {
      changed_.wait_until(mutex_, due);
      continue;
    }
    unschedule(*task);
    running_ = task;
    run_again_ = removed_ = false;
    lock.unlock();
    const Seconds wait = task->run();
    lock.lock();
    const auto pause =
        run_again_ ? Clock::duration(0) : std::chrono::duration_cast<Clock::duration>(wait);
    if (!removed_) schedule(*task, Clock::now() + pause);
    running_ = nullptr;
    finished_.notify_all();
  }
}

}  // namespace evenkeel
