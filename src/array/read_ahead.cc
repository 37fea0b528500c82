#include "array/read_ahead.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "array/impl.h"
#include "array/row_extents.h"
#include "base/thread.h"
#include "evenkeel/error.h"

namespace evenkeel {

FeedRunner::FeedRunner(const Layout& layout, Engine& engine, JobSource& source,
                       std::optional<std::uint64_t> merge_gap, std::uint64_t budget_limit,
                       RowCache* cache)
    : layout_(layout),
      engine_(engine),
      source_(source),
      feed_(layout, engine, source, merge_gap, budget_limit, cache) {}

void FeedRunner::run() {
  if (!engine_.maps_files()) {
    engine_.run(feed_);
    return;
  }
  while (Job* job = source_.next_job()) {
    copy_mapped(engine_, layout_, job->starts, job->count, job->out);
    source_.job_done(*job);
  }
}

BatchReader::BatchReader(const Layout& layout, Engine& engine, BatchMaker& maker,
                         std::optional<std::uint64_t> merge_gap, std::uint64_t budget_limit,
                         RowCache* cache)
    : maker_(maker), runner_(layout, engine, *this, merge_gap, budget_limit, cache) {}

bool BatchReader::read(std::size_t slot, std::uint64_t number) {
  wanted_ = {slot, number};
  done_ = false;
  try {
    runner_.run();
  } catch (...) {
    runner_.reset();
    wanted_.reset();
    throw;
  }
  wanted_.reset();
  if (!done_) return false;
  maker_.finish(slot, number);
  return true;
}

Job* BatchReader::next_job() {
  if (!wanted_) return nullptr;
  const Wanted wanted = *std::exchange(wanted_, std::nullopt);
  return &maker_.prepare(wanted.slot, wanted.number);
}

ReadAhead::Reader::Reader(ReadAhead& owner, std::uint64_t budget_limit)
    : owner_(owner),
      runner_(owner.layout_, owner.engine_, *this, owner.options_.merge_gap, budget_limit,
              owner.options_.cache) {}

void ReadAhead::Reader::run(std::uint64_t most_batches) {
  allowed_ = most_batches;
  runner_.run();
}

Job* ReadAhead::Reader::next_job() {
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
      on_demand_(layout, engine, maker, options.merge_gap, options.budget_limit, options.cache),
      slots_(options.slots),
      end_(options.end) {
  if (options.second_reads) second_.emplace(*this, options.budget_limit);
}

ReadAhead::~ReadAhead() {
  if (owned_here()) {
    close();
    return;
  }
  // After fork the threads are the parent's; there is nothing here to wait for.
  if (reader_thread_.joinable()) reader_thread_.detach();
  if (helper_thread_.joinable()) helper_thread_.detach();
}

bool ReadAhead::owned_here() const { return owner_ == ::getpid(); }

Error ReadAhead::closed_error() const {
  return Error(ErrorKind::kClosed, options_.what, "used after close").hint(options_.closed_hint);
}

bool ReadAhead::wait(std::optional<Clock::time_point> deadline) {
  if (deadline) return changed_.wait_until(mutex_, *deadline);
  changed_.wait(mutex_);
  return true;
}

ReadAhead::Outcome ReadAhead::take(const Use& use, std::optional<Clock::time_point> deadline) {
  MutexLock lock(mutex_);
  for (bool in_time = true;; in_time = wait(deadline)) {
    if (closed_) throw closed_error();
    if (!changing_) {
      const std::uint64_t number = next_to_take_;
      if (number >= end_) return Outcome::kEnd;
      if (!start_threads(deadline.has_value())) {
        if (closed_ || changing_ || next_to_take_ != number) continue;
        if (!has(number, State::kReading)) read_on_demand(number);
      }
      if (next_to_take_ == number && has(number, State::kReady)) {
        slot_of(number).state = State::kTaken;
        ++next_to_take_;
        use(number % slots_.size(), number);
        return Outcome::kTaken;
      }
      // What was begun before a failure is still good.
      if (failure_ && !coming(number)) std::rethrow_exception(failure_);
    }
    if (!in_time) return Outcome::kTimeout;
  }
}

void ReadAhead::read_on_demand(std::uint64_t number) {
  Slot& slot = slot_of(number);
  slot.state = State::kReading;
  slot.number = number;
  on_demand_now_ = true;
  mutex_.unlock();
  bool read = false;
  std::exception_ptr failure;
  try {
    read = on_demand_.read(number % options_.slots, number);
  } catch (...) {
    failure = std::current_exception();
  }
  mutex_.lock();
  on_demand_now_ = false;
  slot.state = read ? State::kReady : State::kFree;
  next_to_read_ = read ? number + 1 : number;
  changed_.notify_all();
  if (failure) std::rethrow_exception(failure);
}

void ReadAhead::give_back(std::uint64_t number) {
  {
    MutexLock lock(mutex_);
    if (!has(number, State::kTaken)) return;
    slot_of(number).state = State::kFree;
  }
  slot_free_.notify_one();
  // A helping thread that also finishes is notified of each batch to finish, and looks then.
  if (second_ && !options_.finish_on_own_thread) help_wanted_.notify_one();
}

std::uint64_t ReadAhead::position() const {
  MutexLock lock(mutex_);
  return next_to_take_;
}

std::uint64_t ReadAhead::end() const {
  MutexLock lock(mutex_);
  return end_;
}

bool ReadAhead::wait_for_change(std::optional<Clock::time_point> deadline) {
  while (changing_) {
    if (!wait(deadline) && changing_) return false;
  }
  return true;
}

void ReadAhead::seek(std::uint64_t number, std::uint64_t end) {
  MutexLock lock(mutex_);
  wait_for_change({});
  if (closed_) throw closed_error();
  changing_ = true;
  stop_threads({});
  for (Slot& slot : slots_) slot.state = State::kFree;
  failure_ = nullptr;
  next_to_read_ = next_to_take_ = number;
  end_ = end;
  changing_ = false;
  changed_.notify_all();
}

bool ReadAhead::close(std::optional<Clock::time_point> deadline) {
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
  if (!wait_for_change(deadline)) return false;
  changing_ = true;
  const bool stopped = stop_threads(deadline);
  changing_ = false;
  changed_.notify_all();
  return stopped;
}

// A thread that ends says so, and a caller that waits for it may stop waiting.
bool ReadAhead::start_threads(bool also_for_one_slot) {
  if (reader_thread_.joinable()) return true;
  if (on_demand_now_ || (slots_.size() == 1 && !also_for_one_slot)) return false;
  const auto thread = [this](void (ReadAhead::*loop)()) {
    mutex_.assert_held();
    ++threads_;
    try {
      return start_thread([this, loop] {
        (this->*loop)();
        MutexLock lock(mutex_);
        --threads_;
        changed_.notify_all();
      });
    } catch (...) {
      --threads_;
      throw;
    }
  };
  try {
    if (options_.finish_on_own_thread || second_) helper_thread_ = thread(&ReadAhead::help_loop);
    reader_thread_ = thread(&ReadAhead::read_loop);
    return true;
  } catch (const std::system_error&) {
    // The helping thread may have been there for a moment, and have read something.
    changing_ = true;
    stop_threads({});
    for (Slot& slot : slots_) {
      if (slot.state != State::kTaken) slot.state = State::kFree;
    }
    failure_ = nullptr;
    next_to_read_ = next_to_take_;
    changing_ = false;
    changed_.notify_all();
    return false;
  }
}

bool ReadAhead::stop_threads(std::optional<Clock::time_point> deadline) {
  stopping_ = true;
  first_.cancel();
  if (second_) second_->cancel();
  on_demand_.cancel();
  wake_all();
  while (threads_ > 0 || on_demand_now_) {
    if (!wait(deadline)) return threads_ == 0 && !on_demand_now_;
  }
  // They have let go of the mutex for the last time, or are about to.
  for (std::thread* thread : {&reader_thread_, &helper_thread_}) {
    if (!thread->joinable()) continue;
    std::thread ended = std::move(*thread);
    mutex_.unlock();
    ended.join();
    mutex_.lock();
  }
  first_.reset();
  if (second_) second_->reset();
  on_demand_.reset();
  for (Slot& slot : slots_) slot.job = nullptr;
  stopping_ = false;
  return true;
}

void ReadAhead::wake_all() {
  slot_free_.notify_all();
  help_wanted_.notify_all();
  changed_.notify_all();
}

void ReadAhead::read_loop() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!reading_is_over() && !can_read()) slot_free_.wait(mutex_);
    if (reading_is_over()) return;
    lock.unlock();
    run(first_, UINT64_MAX);
    lock.lock();
  }
}

// An exception of one thread ends all reading.
void ReadAhead::run(Reader& reader, std::uint64_t most_batches) {
  try {
    reader.run(most_batches);
  } catch (...) {
    MutexLock lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    for (Slot& slot : slots_) {
      if (slot.state == State::kReading && slot.reader == &reader) slot.state = State::kFailed;
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

bool ReadAhead::none_reading() const {
  return std::ranges::find(slots_, State::kReading, &Slot::state) == slots_.end();
}

void ReadAhead::help_loop() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!oldest_read() && !second_can_read() && !(reading_is_over() && none_reading()) &&
           !stopping_) {
      help_wanted_.wait(mutex_);
    }
    if (stopping_) return;
    if (Slot* slot = oldest_read()) {
      finish(*slot);
    } else if (second_can_read()) {
      lock.unlock();
      run(*second_, 1);
      lock.lock();
    } else {
      return;
    }
  }
}

void ReadAhead::finish(Slot& slot) {
  const std::size_t place = static_cast<std::size_t>(&slot - slots_.data());
  const std::uint64_t number = slot.number;
  mutex_.unlock();
  std::exception_ptr failure;
  try {
    maker_.finish(place, number);
  } catch (...) {
    failure = std::current_exception();
  }
  mutex_.lock();
  slot.state = failure ? State::kFailed : State::kReady;
  if (failure && !failure_) failure_ = failure;
  changed_.notify_all();
}

Job* ReadAhead::next_job(const Reader& reader) {
  std::uint64_t number;
  {
    MutexLock lock(mutex_);
    if (!can_read()) return nullptr;
    number = next_to_read_++;
    Slot& slot = slot_of(number);
    slot.state = State::kReading;
    slot.number = number;
    slot.reader = &reader;
  }
  Job* job;
  {
    MutexLock lock(preparing_);
    job = &maker_.prepare(number % options_.slots, number);
  }
  MutexLock lock(mutex_);
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
  require_unchanged(job);
  std::size_t place;
  std::uint64_t number;
  {
    MutexLock lock(mutex_);
    const auto slot = std::ranges::find(slots_, &job, &Slot::job);
    slot->job = nullptr;
    place = static_cast<std::size_t>(slot - slots_.begin());
    number = slot->number;
    if (options_.finish_on_own_thread) slot->state = State::kRead;
  }
  if (options_.finish_on_own_thread) {
    help_wanted_.notify_one();
    return;
  }
  maker_.finish(place, number);
  {
    MutexLock lock(mutex_);
    slots_[place].state = State::kReady;
  }
  changed_.notify_all();
}

}  // namespace evenkeel
