#include "array/read_ahead.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "array/impl.h"
#include "array/pieces.h"
#include "base/signals.h"

namespace evenkeel {
ReadAhead::ReadAhead(const Layout& layout, Engine& engine, BatchMaker& maker,
                     const Options& options)
    : layout_(layout),
      engine_(engine),
      maker_(maker),
      options_(options),
      owner_(::getpid()),
      mover_(layout, engine, *this, options.merge_gap, options.budget_limit),
      slots_(options.slots) {}

ReadAhead::~ReadAhead() {
  if (owned_here()) {
    stop();
  } else {
    // After fork the threads are the parent's; there is nothing here to wait for.
    if (reader_.joinable()) reader_.detach();
    if (finisher_.joinable()) finisher_.detach();
  }
}

bool ReadAhead::owned_here() const { return owner_ == ::getpid(); }

std::size_t ReadAhead::take(std::uint64_t number) {
  if (slots_.size() == 1 || (!reader_.joinable() && !start())) {
    make_now(number);
    return number % slots_.size();
  }
  std::unique_lock lock(mutex_);
  batch_ready_.wait(lock, [&] { return has(number, State::kReady) || failure_; });
  if (!has(number, State::kReady)) std::rethrow_exception(failure_);
  return number % slots_.size();
}

void ReadAhead::give_back(std::uint64_t number) {
  {
    std::lock_guard lock(mutex_);
    slot_of(number).state = State::kFree;
  }
  slot_free_.notify_one();
}

void ReadAhead::seek(std::uint64_t number) {
  stop();
  for (Slot& slot : slots_) slot.state = State::kFree;
  failure_ = nullptr;
  next_to_read_ = next_to_finish_ = number;
}

bool ReadAhead::start() {
  const SignalsBlocked blocked;
  threaded_ = true;  // before the threads are there to see it
  try {
    if (options_.finish_on_own_thread) {
      finisher_ = std::thread([this] { guarded([this] { finish(); }); });
    }
    reader_ = std::thread([this] { guarded([this] { read(); }); });
    return true;
  } catch (const std::system_error&) {
    stop();
    threaded_ = false;
    return false;
  }
}

void ReadAhead::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  mover_.cancel();
  wake_all();
  if (reader_.joinable()) reader_.join();
  if (finisher_.joinable()) finisher_.join();
  mover_.reset();
  for (Slot& slot : slots_) slot.job = nullptr;
  stopping_ = false;
}

template <class Work>
void ReadAhead::guarded(Work work) {
  try {
    work();
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  wake_all();
}

void ReadAhead::wake_all() {
  slot_free_.notify_all();
  batch_read_.notify_all();
  batch_ready_.notify_all();
}

void ReadAhead::read() {
  std::unique_lock lock(mutex_);
  while (next_to_read_ < options_.end) {
    slot_free_.wait(lock, [&] {
      return stopping_ || failure_ || slot_of(next_to_read_).state == State::kFree;
    });
    if (stopping_ || failure_) return;
    lock.unlock();
    read_some();
    lock.lock();
  }
}

void ReadAhead::read_some() {
  if (engine_.mapped(0)) {
    copy_from_mapping();
  } else {
    engine_.run(mover_);
  }
}

void ReadAhead::copy_from_mapping() {
  while (Job* job = next_job()) {
    copy_mapped(engine_, layout_, job->starts, job->count, job->out);
    job_done(*job);
  }
}

void ReadAhead::finish() {
  std::unique_lock lock(mutex_);
  while (next_to_finish_ < options_.end) {
    batch_read_.wait(lock,
                     [&] { return stopping_ || failure_ || has(next_to_finish_, State::kRead); });
    // What was read before a failure is still good.
    if (stopping_ || !has(next_to_finish_, State::kRead)) return;
    const std::uint64_t number = next_to_finish_++;
    lock.unlock();
    maker_.finish(number % slots_.size(), number);
    lock.lock();
    slot_of(number).state = State::kReady;
    batch_ready_.notify_one();
  }
}

// No thread, so no lock is held against anyone: the caller reads.
void ReadAhead::make_now(std::uint64_t number) {
  wanted_now_ = number;
  try {
    read_some();
  } catch (...) {
    mover_.reset();
    wanted_now_.reset();
    throw;
  }
  maker_.finish(number % slots_.size(), number);
}

Job* ReadAhead::next_job() {
  std::uint64_t number;
  if (!threaded_) {
    if (!wanted_now_) return nullptr;
    number = *std::exchange(wanted_now_, std::nullopt);
  } else {
    std::lock_guard lock(mutex_);
    if (stopping_ || failure_ || next_to_read_ >= options_.end) return nullptr;
    Slot& slot = slot_of(next_to_read_);
    if (slot.state != State::kFree) return nullptr;
    number = next_to_read_++;
    slot.state = State::kReading;
    slot.number = number;
  }
  Job& job = maker_.prepare(number % slots_.size(), number);
  slot_of(number).job = &job;
  return &job;
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
  const auto slot = std::ranges::find(slots_, &job, &Slot::job);  // set by this thread alone
  slot->job = nullptr;
  if (!options_.finish_on_own_thread) {
    maker_.finish(static_cast<std::size_t>(slot - slots_.begin()), slot->number);
  }
  {
    std::lock_guard lock(mutex_);
    slot->state = options_.finish_on_own_thread ? State::kRead : State::kReady;
  }
  (options_.finish_on_own_thread ? batch_read_ : batch_ready_).notify_one();
}

}  // namespace evenkeel
