#include "array/lending_pool.h"

#include <algorithm>
#include <utility>

#include "array/read_ahead.h"
#include "base/checked.h"
#include "base/sys.h"
#include "evenkeel/error.h"

namespace evenkeel {

Loan::Loan(std::shared_ptr<LendingPool> pool, LentMemory memory)
    : pool_(std::move(pool)), memory_(std::move(memory)) {}

Loan& Loan::operator=(Loan&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  pool_ = std::move(other.pool_);
  memory_ = std::exchange(other.memory_, {});
  return *this;
}

void Loan::give_back() {
  if (pool_) pool_->came_back(std::exchange(memory_, {}));
  pool_.reset();
}

LendingPool::LendingPool(std::uint64_t bytes, std::string what, std::size_t spares)
    : bytes_(bytes), what_(std::move(what)), most_spares_(spares) {}

void LendingPool::serve(std::weak_ptr<ReadAhead> reader) {
  MutexLock lock(mutex_);
  reader_ = std::move(reader);
}

std::uint64_t LendingPool::slot_bytes() const {
  // A size that would round up past 2^64 is reserved unrounded, and therefore refused.
  return std::max(bytes_, round_up(bytes_, sys::page_size()));
}

void LendingPool::add_slot(Reservation share) {
  MutexLock lock(mutex_);
  slots_.push_back({std::move(share), {}});
}

void LendingPool::allocate() {
  MutexLock lock(mutex_);
  const auto lacks = [](const Slot& slot) { return !slot.memory; };
  const auto count = static_cast<std::size_t>(std::ranges::count_if(slots_, lacks));
  std::vector<Pages> pages = Pages::several(count, bytes_, what_);
  for (Slot& slot : slots_) {
    if (!lacks(slot)) continue;
    slot.memory = {pages.back().data(), std::move(pages.back())};
    pages.pop_back();
  }
}

void LendingPool::add_slot(std::span<std::byte> memory) {
  MutexLock lock(mutex_);
  of_caller_ = true;
  slots_.push_back({{}, {memory.data(), {}}});
}

std::byte* LendingPool::buffer(std::size_t slot) {
  MutexLock lock(mutex_);
  LentMemory& memory = slots_[slot].memory;
  if (!memory) {
    // The caller expects batches in its own memory, so other pages cannot replace it.
    if (of_caller_) {
      throw Error(ErrorKind::kInvalid, "lend", "the caller's memory for " + what_ + " is in use")
          .hint("release the batches before you seek or start a new loop");
    }
    Pages pages(bytes_, what_);
    memory = {pages.data(), std::move(pages)};
    std::erase_if(empty_, [&](const Empty& one) { return one.slot == slot; });
  }
  return memory.data;
}

Loan LendingPool::lend(std::size_t slot, std::uint64_t number) {
  MutexLock lock(mutex_);
  empty_.push_back({slot, number});
  return {shared_from_this(), std::exchange(slots_[slot].memory, {})};
}

bool LendingPool::replace_lent() {
  std::vector<std::uint64_t> numbers;
  std::shared_ptr<ReadAhead> reader;
  {
    MutexLock lock(mutex_);
    if (empty_.empty()) return true;
    if (of_caller_) return empty_.size() < slots_.size();
    for (const Empty& one : empty_) numbers.push_back(one.number);
    empty_.clear();
    reader = enter();
  }
  if (!reader) return true;
  for (const std::uint64_t number : numbers) reader->give_back(number);
  leave(std::move(reader));
  return true;
}

std::shared_ptr<ReadAhead> LendingPool::enter() {
  std::shared_ptr<ReadAhead> reader = closed_ ? nullptr : reader_.lock();
  if (reader) ++in_reader_;
  return reader;
}

// Releases the reader before `close` can return: its destructor uses what its owner destroys after
// that.
void LendingPool::leave(std::shared_ptr<ReadAhead> reader) {
  reader.reset();
  MutexLock lock(mutex_);
  if (--in_reader_ == 0) reader_left_.notify_all();
}

void LendingPool::keep_slots(std::size_t count, std::span<const std::uint64_t> taken) {
  std::vector<Slot> before;  // freed without the mutex
  std::vector<LentMemory> memory;
  MutexLock lock(mutex_);
  memory.reserve(slots_.size());
  before.reserve(slots_.size());
  before.swap(slots_);
  for (Slot& slot : before) {
    if (slot.memory) memory.push_back(std::exchange(slot.memory, {}));
  }
  std::erase_if(empty_, [&](const Empty& one) {
    return std::ranges::find(taken, one.number) == taken.end();
  });
  for (Empty& one : empty_) one.slot = one.number % count;
  for (std::size_t slot = 0; slot < count; ++slot) {
    slots_.push_back({std::move(before[slot].share), {}});
    const bool lent = std::ranges::find(empty_, slot, &Empty::slot) != empty_.end();
    if (lent || memory.empty()) continue;
    slots_.back().memory = std::move(memory.back());
    memory.pop_back();
  }
}

Loan LendingPool::take_spare() {
  {
    MutexLock lock(mutex_);
    if (!spares_.empty()) {
      LentMemory memory = std::move(spares_.back());
      spares_.pop_back();
      return {shared_from_this(), std::move(memory)};
    }
  }
  Pages pages(bytes_, what_);
  std::byte* const data = pages.data();
  return {shared_from_this(), {data, std::move(pages)}};
}

void LendingPool::came_back(LentMemory memory) {
  if (!memory || fork_generation_ != ForkGeneration::now()) return;
  std::shared_ptr<ReadAhead> reader;
  std::uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    const bool whole = !memory.pages || memory.pages.size() >= bytes_;
    if (closed_ || !whole) return;
    if (!empty_.empty()) {
      const Empty first = empty_.front();
      empty_.erase(empty_.begin());
      slots_[first.slot].memory = std::move(memory);
      number = first.number;
      reader = enter();
    } else if (spares_.size() < most_spares_) {
      spares_.push_back(std::move(memory));
    }
  }
  if (!reader) return;
  reader->give_back(number);
  leave(std::move(reader));
}

void LendingPool::close() {
  std::vector<Slot> slots;
  std::vector<LentMemory> spares;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    slots.swap(slots_);
    spares.swap(spares_);
    empty_.clear();
    while (in_reader_ > 0) reader_left_.wait(mutex_);
  }
}

}  // namespace evenkeel
