#include "array/read_ahead.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "array/row_extents.h"
#include "base/checked.h"
#include "base/thread.h"
#include "evenkeel/error.h"

namespace evenkeel {

std::size_t batches_ahead(std::uint64_t reads_of_batch, std::uint64_t batch_bytes,
                          std::size_t fewest) {
  constexpr std::uint64_t kReads = 192, kBytes = 8 << 20, kMost = 16;
  const std::uint64_t by_reads = divide_up(kReads, std::max<std::uint64_t>(reads_of_batch, 1));
  const std::uint64_t by_bytes = divide_up(kBytes, std::max<std::uint64_t>(batch_bytes, 1));
  return std::clamp<std::uint64_t>(std::min(by_reads, by_bytes), fewest, kMost);
}

ReadAhead::Reader::Reader(ReadAhead& owner, std::size_t stream, std::uint64_t budget_limit)
    : owner_(owner),
      stream_(stream),
      runner_(owner.streams_[stream].layout, owner.streams_[stream].engine, *this,
              owner.streams_[stream].merge_gap, budget_limit, owner.streams_[stream].cache) {}

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
    : ReadAhead({{layout, engine, options.merge_gap, {}, options.cache}}, maker, options) {}

ReadAhead::ReadAhead(std::vector<ReadStream> streams, BatchMaker& maker, const Options& options)
    : streams_(std::move(streams)),
      maker_(maker),
      options_(options),
      owner_(::getpid()),
      on_demand_(streams_, maker, options.budget_limit),
      slots_(options.slots),
      next_to_read_(streams_.size()),
      end_(options.end) {
  for (Slot& slot : slots_) slot.streams.resize(streams_.size());
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    readers_.emplace_back(*this, i, options.budget_limit);
  }
  if (options.second_reads) second_.emplace(*this, 0, options.budget_limit);
  if (options.kind) live_.begin(*options.kind, *this);
}

ReadAhead::~ReadAhead() {
  live_.end();
  if (owned_here()) {
    close();
    return;
  }
  // After fork the threads exist only in the parent, so there is nothing to wait for.
  for (std::thread& thread : reader_threads_) {
    if (thread.joinable()) thread.detach();
  }
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

LiveFigures ReadAhead::figures() const {
  LiveFigures figures;
  figures.batches = taken_.load(std::memory_order_relaxed);
  figures.batch_wait_ns = waited_ns_.load(std::memory_order_relaxed);
  return figures;
}

LiveLabels ReadAhead::live_labels() const {
  LiveLabels labels;
  labels.batch = options_.batch;
  return labels;
}

class ReadAhead::WaitClock {
 public:
  explicit WaitClock(std::atomic<std::uint64_t>& sum) : sum_(sum) {}
  ~WaitClock() {
    if (!began_) return;
    const auto waited =
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - *began_);
    sum_.fetch_add(static_cast<std::uint64_t>(waited.count()), std::memory_order_relaxed);
  }
  WaitClock(const WaitClock&) = delete;
  WaitClock& operator=(const WaitClock&) = delete;
  void begin() {
    if (!began_) began_ = Clock::now();
  }

 private:
  std::atomic<std::uint64_t>& sum_;
  std::optional<Clock::time_point> began_;
};

ReadAhead::Outcome ReadAhead::take(const Use& use, std::optional<Clock::time_point> deadline) {
  Outcome outcome;
  {
    WaitClock waits(waited_ns_);
    outcome = take_next(use, deadline, waits);
  }
  if (outcome == Outcome::kTaken) taken_.fetch_add(1, std::memory_order_relaxed);
  note_work();
  return outcome;
}

ReadAhead::Outcome ReadAhead::take_next(const Use& use, std::optional<Clock::time_point> deadline,
                                        WaitClock& waits) {
  MutexLock lock(mutex_);
  for (bool in_time = true;; waits.begin(), in_time = wait(deadline)) {
    if (closed_) throw closed_error();
    if (!changing_) {
      const std::uint64_t number = next_to_take_;
      if (number >= end_) return Outcome::kEnd;
      if (!start_threads(deadline.has_value())) {
        if (closed_ || changing_ || next_to_take_ != number) continue;
        waits.begin();
        if (!has(number, State::kReading)) read_on_demand(number);
      }
      if (next_to_take_ == number && has(number, State::kReady)) {
        slot_of(number).state = State::kTaken;
        ++next_to_take_;
        use(number % slots_.size(), number);
        return Outcome::kTaken;
      }
      // Batches that were begun before a failure are still handed out.
      if (failure_ && !coming(number)) std::rethrow_exception(failure_);
    }
    if (!in_time) return Outcome::kTimeout;
  }
}

void ReadAhead::read_on_demand(std::uint64_t number) {
  const std::size_t place = number % slots_.size();
  Slot& slot = slots_[place];
  slot.state = State::kReading;
  slot.number = number;
  on_demand_now_ = true;
  mutex_.unlock();
  bool read = false;
  std::exception_ptr failure;
  try {
    read = on_demand_.read(place, number);
  } catch (...) {
    failure = std::current_exception();
  }
  mutex_.lock();
  on_demand_now_ = false;
  slot.state = read ? State::kReady : State::kFree;
  std::ranges::fill(next_to_read_, read ? number + 1 : number);
  changed_.notify_all();
  if (failure) std::rethrow_exception(failure);
}

void ReadAhead::give_back(std::uint64_t number) {
  {
    MutexLock lock(mutex_);
    if (!has(number, State::kTaken)) return;
    slot_of(number).state = State::kFree;
  }
  slot_free_.notify_all();
  // A helper thread that also finishes batches is notified of each of them, and checks then.
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

void ReadAhead::seek(std::uint64_t number, std::uint64_t end,
                     const std::function<void()>& while_stopped,
                     std::optional<std::uint64_t> from) {
  MutexLock lock(mutex_);
  wait_for_change({});
  if (closed_) throw closed_error();
  if (from && *from != next_to_take_) return;
  changing_ = true;
  if (options_.interrupt) options_.interrupt();
  stop_threads({});
  for (Slot& slot : slots_) slot.state = State::kFree;
  failure_ = nullptr;
  std::exception_ptr refusal;
  if (while_stopped) {
    mutex_.unlock();  // others see `changing_` and wait
    try {
      while_stopped();
    } catch (...) {
      refusal = std::current_exception();
    }
    mutex_.lock();
  }
  if (!refusal) {
    next_to_take_ = number;
    end_ = end;
  }
  std::ranges::fill(next_to_read_, next_to_take_);
  changing_ = false;
  changed_.notify_all();
  if (refusal) std::rethrow_exception(refusal);
}

void ReadAhead::keep_slots(std::size_t count, const WhileStopped& while_stopped) {
  MutexLock lock(mutex_);
  wait_for_change({});
  std::vector<std::uint64_t> taken;
  for (const Slot& slot : slots_) {
    if (slot.state == State::kTaken) taken.push_back(slot.number);
  }
  const auto each_has_a_slot = [&] {
    std::vector<bool> used(count);
    return std::ranges::none_of(taken, [&](std::uint64_t number) {
      const bool twice = used[number % count];
      used[number % count] = true;
      return twice;
    });
  };
  while (count < slots_.size() && !each_has_a_slot()) ++count;
  if (closed_ || count >= slots_.size()) return;
  std::vector<Slot> slots(count);
  for (Slot& slot : slots) slot.streams.resize(streams_.size());
  changing_ = true;
  if (options_.interrupt) options_.interrupt();
  stop_threads({});
  // Batches may have been given back meanwhile, but none was taken: `take` waits for this.
  std::erase_if(taken, [this](std::uint64_t number) {
    mutex_.assert_held();
    return !has(number, State::kTaken);
  });
  for (const std::uint64_t number : taken) {
    slots[number % count].state = State::kTaken;
    slots[number % count].number = number;
  }
  slots_ = std::move(slots);
  failure_ = nullptr;
  std::ranges::fill(next_to_read_, next_to_take_);
  std::exception_ptr failure;
  mutex_.unlock();  // others see `changing_` and wait
  try {
    while_stopped(count, taken);
  } catch (...) {  // no memory: unused slots keep theirs
    failure = std::current_exception();
  }
  mutex_.lock();
  changing_ = false;
  changed_.notify_all();
  if (failure) std::rethrow_exception(failure);
}

bool ReadAhead::close(std::optional<Clock::time_point> deadline) {
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
  if (!wait_for_change(deadline)) return false;
  changing_ = true;
  if (options_.interrupt) options_.interrupt();
  const bool stopped = stop_threads(deadline);
  changing_ = false;
  changed_.notify_all();
  return stopped;
}

// Each thread reports its end, so that a caller that waits for it can give up at a deadline.
bool ReadAhead::start_threads(bool also_for_one_slot) {
  if (!reader_threads_.empty()) return true;
  if (on_demand_now_ || (slots_.size() == 1 && !also_for_one_slot)) return false;
  reader_threads_.reserve(streams_.size());  // push_back must not fail after a thread was started
  const auto thread = [this](const std::function<void()>& loop) {
    mutex_.assert_held();
    ++threads_;
    try {
      return start_thread([this, loop] {
        loop();
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
    if (options_.finish_on_own_thread || second_) helper_thread_ = thread([this] { help_loop(); });
    for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
      reader_threads_.push_back(thread([this, stream] { read_loop(stream); }));
    }
    return true;
  } catch (const std::system_error&) {
    // The threads that were started wait for the mutex and have done nothing yet. So
    // options_.interrupt is not called: only a seek would end the interruption.
    changing_ = true;
    stop_threads({});
    for (Slot& slot : slots_) {
      if (slot.state != State::kTaken) slot.state = State::kFree;
    }
    failure_ = nullptr;
    std::ranges::fill(next_to_read_, next_to_take_);
    changing_ = false;
    changed_.notify_all();
    return false;
  }
}

bool ReadAhead::stop_threads(std::optional<Clock::time_point> deadline) {
  stopping_ = true;
  for (Reader& reader : readers_) reader.cancel();
  if (second_) second_->cancel();
  on_demand_.cancel();
  wake_all();
  while (threads_ > 0 || on_demand_now_) {
    if (!wait(deadline)) return threads_ == 0 && !on_demand_now_;
  }
  // The threads have released the mutex for the last time, or are about to.
  std::vector<std::thread> ended = std::exchange(reader_threads_, {});
  if (helper_thread_.joinable()) ended.push_back(std::move(helper_thread_));
  mutex_.unlock();
  for (std::thread& thread : ended) thread.join();
  mutex_.lock();
  for (Reader& reader : readers_) reader.reset();
  if (second_) second_->reset();
  on_demand_.reset();
  for (Slot& slot : slots_) std::ranges::fill(slot.streams, StreamState{});
  stopping_ = false;
  return true;
}

void ReadAhead::wake_all() {
  slot_free_.notify_all();
  help_wanted_.notify_all();
  changed_.notify_all();
}

bool ReadAhead::reading_is_over() const {
  if (stopping_ || failure_) return true;
  return std::ranges::all_of(next_to_read_, [this](std::uint64_t next) {
    mutex_.assert_held();
    return next >= end_;
  });
}

bool ReadAhead::can_read(std::size_t stream) {
  if (stream_is_over(stream)) return false;
  const std::uint64_t number = next_to_read_[stream];
  const Slot& slot = slot_of(number);
  const bool begun = slot.state == State::kReading && slot.number == number;
  const auto after = streams_[stream].after;
  if (after) return begun && slot.streams[*after].state == StreamState::State::kDone;
  return begun || slot.state == State::kFree;
}

void ReadAhead::read_loop(std::size_t stream) {
  MutexLock lock(mutex_);
  for (;;) {
    while (!stream_is_over(stream) && !can_read(stream)) slot_free_.wait(mutex_);
    if (stream_is_over(stream)) return;
    lock.unlock();
    run(readers_[stream], UINT64_MAX);
    lock.lock();
  }
}

// An exception in one thread ends all reading. Batches that every other stream has begun are still
// completed.
void ReadAhead::run(Reader& reader, std::uint64_t most_batches) {
  try {
    reader.run(most_batches);
  } catch (...) {
    MutexLock lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    for (Slot& slot : slots_) {
      const bool lost = std::ranges::any_of(slot.streams, [&](const StreamState& one) {
        return one.state == StreamState::State::kWaiting ||
               (one.state == StreamState::State::kBegun && one.reader == &reader);
      });
      if (slot.state == State::kReading && lost) slot.state = State::kFailed;
    }
    wake_all();
  }
}

ReadAhead::Slot* ReadAhead::oldest_read() {
  Slot* oldest = nullptr;
  for (Slot& slot : slots_) {
    const bool coming = slot.state == State::kRead || slot.state == State::kReading;
    if (coming && (!oldest || slot.number < oldest->number)) oldest = &slot;
  }
  return oldest && oldest->state == State::kRead ? oldest : nullptr;
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

// Calls BatchMaker::begin once for each batch. If that throws, the batch is not begun for any
// stream.
void ReadAhead::begin(std::size_t slot, std::uint64_t number) {
  {
    MutexLock lock(mutex_);
    if (slots_[slot].begun) return;
  }
  maker_.begin(slot, number);
  MutexLock lock(mutex_);
  slots_[slot].begun = true;
}

Job* ReadAhead::next_job(const Reader& reader) {
  const std::size_t stream = reader.stream();
  std::uint64_t number;
  std::size_t place;
  bool first;
  {
    MutexLock lock(mutex_);
    if (!can_read(stream)) return nullptr;
    number = next_to_read_[stream]++;
    place = number % slots_.size();
    Slot& slot = slots_[place];
    first = slot.state == State::kFree;
    if (first) {
      slot.state = State::kReading;
      slot.number = number;
      slot.begun = false;
      std::ranges::fill(slot.streams, StreamState{});
    }
    slot.streams[stream] = {StreamState::State::kBegun, &reader, nullptr};
  }
  // The other streams may have been waiting for this slot.
  if (first && streams_.size() > 1) slot_free_.notify_all();
  Job* job;
  {
    MutexLock lock(preparing_);
    begin(place, number);
    job = &maker_.prepare_stream(place, number, stream);
  }
  MutexLock lock(mutex_);
  slots_[place].streams[stream].job = job;
  return job;
}

void ReadAhead::job_done(const Reader& reader, Job& job) {
  const std::size_t stream = reader.stream();
  require_unchanged(streams_[stream].layout, streams_[stream].engine, job);
  std::size_t place;
  std::uint64_t number;
  bool complete;
  {
    MutexLock lock(mutex_);
    const auto slot = std::ranges::find_if(
        slots_, [&](const Slot& one) { return one.streams[stream].job == &job; });
    slot->streams[stream] = {StreamState::State::kDone, nullptr, nullptr};
    place = static_cast<std::size_t>(slot - slots_.begin());
    number = slot->number;
    complete = slot->state == State::kReading &&
               std::ranges::all_of(slot->streams, [](const StreamState& one) {
                 return one.state == StreamState::State::kDone;
               });
    if (complete && options_.finish_on_own_thread) slot->state = State::kRead;
  }
  if (!complete) {
    slot_free_.notify_all();  // a stream may read after this one
    return;
  }
  if (options_.finish_on_own_thread) {
    help_wanted_.notify_one();
    return;
  }
  State state = State::kFailed;
  const auto settle = [&] {
    MutexLock lock(mutex_);
    slots_[place].state = state;
  };
  try {
    maker_.finish(place, number);
  } catch (...) {
    settle();
    throw;
  }
  state = State::kReady;
  settle();
  changed_.notify_all();
}

}  // namespace evenkeel
