#include "array/read_ahead.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "array/impl.h"
#include "array/row_extents.h"
#include "base/thread.h"

namespace evenkeel {

ReadAhead::Lane::Lane(ReadAhead& owner, std::uint64_t budget_limit)
    : owner_(owner),
      mover_(owner.layout_, owner.engine_, *this, owner.options_.merge_gap, budget_limit) {}

void ReadAhead::Lane::run(std::uint64_t most_batches) {
  allowed_ = most_batches;
  if (!owner_.engine_.mapped(0)) {
    owner_.engine_.run(mover_);
    return;
  }
  while (Job* job = next_job()) {
    copy_mapped(owner_.engine_, owner_.layout_, job->starts, job->count, job->out);
    job_done(*job);
  }
}

Job* ReadAhead::Lane::next_job() {
  if (allowed_ == 0) return nullptr;
  --allowed_;
  return owner_.next_job(*this);
}

ReadAhead::ReadAhead(const Layout& layout, Engine& engine, BatchMaker& maker,
                     const Options& options)
    : layout_(layout),
      engine_(engine),
      maker_(maker),
      options_(options),
      owner_(::getpid()),
      first_(*this, options.budget_limit),
      slots_(options.slots) {
  if (options.second_reads) second_.emplace(*this, options.budget_limit);
}

ReadAhead::~ReadAhead() {
  if (owned_here()) {
    stop();
  } else {
    // After fork the threads are the parent's; there is nothing here to wait for.
    if (reader_.joinable()) reader_.detach();
    if (helper_.joinable()) helper_.detach();
  }
}

bool ReadAhead::owned_here() const { return owner_ == ::getpid(); }

std::size_t ReadAhead::take(std::uint64_t number) {
  if (!has_threads(number)) {
    make_now(number);
    return number % slots_.size();
  }
  std::unique_lock lock(mutex_);
  batch_ready_.wait(lock, [&] { return can_be_taken(number); });
  if (!has(number, State::kReady)) std::rethrow_exception(failure_);
  return number % slots_.size();
}

bool ReadAhead::wait_for(std::uint64_t number, std::chrono::nanoseconds most) {
  even_for_one_slot_ = true;
  if (!has_threads(number)) return true;
  std::unique_lock lock(mutex_);
  return batch_ready_.wait_for(lock, most, [&] { return can_be_taken(number); });
}

void ReadAhead::give_back(std::uint64_t number) {
  {
    std::lock_guard lock(mutex_);
    slot_of(number).state = State::kFree;
  }
  slot_free_.notify_one();
  // Who finishes batches is told of each; who only reads is not.
  if (second_ && !options_.finish_on_own_thread) help_wanted_.notify_one();
}

void ReadAhead::seek(std::uint64_t number) {
  stop();
  for (Slot& slot : slots_) slot.state = State::kFree;
  failure_ = nullptr;
  next_to_read_ = number;
}

bool ReadAhead::has_threads(std::uint64_t number) {
  if (slots_.size() == 1 && !even_for_one_slot_) return false;
  return reader_.joinable() || start(number);
}

bool ReadAhead::start(std::uint64_t number) {
  threaded_ = true;  // before the threads are there to see it
  try {
    if (options_.finish_on_own_thread || second_) helper_ = start_thread([this] { help(); });
    reader_ = start_thread([this] { read(); });
    return true;
  } catch (const std::system_error&) {
    stop();
    threaded_ = false;
    // The helping thread may have been there for a moment, and have read something.
    for (Slot& slot : slots_) {
      if (slot.number >= number) slot.state = State::kFree;
    }
    failure_ = nullptr;
    next_to_read_ = number;
    return false;
  }
}

void ReadAhead::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  first_.cancel();
  if (second_) second_->cancel();
  wake_all();
  if (reader_.joinable()) reader_.join();
  if (helper_.joinable()) helper_.join();
  first_.reset();
  if (second_) second_->reset();
  for (Slot& slot : slots_) slot.job = nullptr;
  stopping_ = false;
}

void ReadAhead::wake_all() {
  slot_free_.notify_all();
  help_wanted_.notify_all();
  batch_ready_.notify_all();
}

void ReadAhead::read() {
  std::unique_lock lock(mutex_);
  for (;;) {
    slot_free_.wait(lock, [&] { return reading_is_over() || can_read(); });
    if (reading_is_over()) return;
    lock.unlock();
    run(first_, UINT64_MAX);
    lock.lock();
  }
}

// What a lane throws ends all reading, for everybody.
void ReadAhead::run(Lane& lane, std::uint64_t most_batches) {
  try {
    lane.run(most_batches);
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    for (Slot& slot : slots_) {
      if (slot.state == State::kReading && slot.reader == &lane) slot.state = State::kFailed;
    }
    wake_all();
  }
}

ReadAhead::Slot* ReadAhead::oldest_read() {
  Slot* oldest = nullptr;
  for (Slot& slot : slots_) {
    if (slot.state == State::kRead && (!oldest || slot.number < oldest->number)) oldest = &slot;
  }
  return oldest;
}

void ReadAhead::help() {
  const auto none_reading = [&] {
    return std::ranges::find(slots_, State::kReading, &Slot::state) == slots_.end();
  };
  std::unique_lock lock(mutex_);
  for (;;) {
    help_wanted_.wait(lock, [&] {
      return oldest_read() || second_can_read() || (reading_is_over() && none_reading()) ||
             stopping_;
    });
    if (stopping_) return;
    if (Slot* slot = oldest_read()) {
      finish(*slot, lock);
    } else if (second_can_read()) {
      lock.unlock();
      run(*second_, 1);
      lock.lock();
    } else {
      return;
    }
  }
}

void ReadAhead::finish(Slot& slot, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  std::exception_ptr failure;
  try {
    maker_.finish(static_cast<std::size_t>(&slot - slots_.data()), slot.number);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  slot.state = failure ? State::kFailed : State::kReady;
  if (failure && !failure_) failure_ = failure;
  batch_ready_.notify_one();
}

// No thread, so no lock is held against anyone: the caller reads.
void ReadAhead::make_now(std::uint64_t number) {
  wanted_now_ = number;
  try {
    first_.run(1);
  } catch (...) {
    first_.reset();
    wanted_now_.reset();
    throw;
  }
  maker_.finish(number % slots_.size(), number);
  // The caller's until it is given back, also if threads can be had by then.
  Slot& slot = slot_of(number);
  slot.state = State::kReady;
  slot.number = number;
  next_to_read_ = number + 1;
}

Job* ReadAhead::next_job(const Lane& lane) {
  std::uint64_t number;
  if (!threaded_) {
    if (!wanted_now_) return nullptr;
    number = *std::exchange(wanted_now_, std::nullopt);
  } else {
    std::lock_guard lock(mutex_);
    if (!can_read()) return nullptr;
    number = next_to_read_++;
    Slot& slot = slot_of(number);
    slot.state = State::kReading;
    slot.number = number;
    slot.reader = &lane;
  }
  Job* job;
  {
    std::lock_guard lock(preparing_);
    job = &maker_.prepare(number % slots_.size(), number);
  }
  std::lock_guard lock(mutex_);
  slot_of(number).job = job;
  return job;
}

// The engine looks when its run ends; this batch may be handed out before that.
void ReadAhead::require_unchanged(const Job& job) {
  std::vector<bool> seen(layout_.segments.size());
  for (const std::uint64_t start : job.starts) {
    const std::uint64_t end = start + job.count;
    for (std::uint32_t file = segment_of(layout_, start);
         file < seen.size() && layout_.segments[file].first_row < end; ++file) {
      if (!seen[file]) engine_.require_unchanged(file);
      seen[file] = true;
    }
  }
}

void ReadAhead::job_done(Job& job) {
  if (!threaded_) return;
  require_unchanged(job);
  std::unique_lock lock(mutex_);
  const auto slot = std::ranges::find(slots_, &job, &Slot::job);
  slot->job = nullptr;
  if (options_.finish_on_own_thread) {
    slot->state = State::kRead;
    lock.unlock();
    help_wanted_.notify_one();
    return;
  }
  lock.unlock();
  maker_.finish(static_cast<std::size_t>(slot - slots_.begin()), slot->number);
  lock.lock();
  slot->state = State::kReady;
  lock.unlock();
  batch_ready_.notify_one();
}

}  // namespace evenkeel
