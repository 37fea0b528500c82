#include "base/read_ahead_memory.h"

#include <utility>

#include "base/account.h"
#include "base/per_process.h"

namespace evenkeel {

ReadAheadMemory::ReadAheadMemory(const Budget& budget, Owner& owner)
    : account_(budget.account_), entry_(std::make_shared<Entry>(owner)) {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  account_->read_ahead.push_back(entry_);
}

ReadAheadMemory::~ReadAheadMemory() {
  {
    const MutexLock lock(Reservation::Account::Registry::get().mutex);
    std::erase(account_->read_ahead, entry_);
  }
  entry_->close();
}

ReadAheadMemory::Entry::Entry(Owner& owner)
    : fork_generation_(ForkGeneration::now()), owner_(&owner) {}

// A child of fork must not lock: a thread of its parent may have held the mutex.
void ReadAheadMemory::Entry::close() {
  if (fork_generation_ != ForkGeneration::now()) return;
  const MutexLock lock(mutex_);
  owner_ = nullptr;
}

std::uint64_t ReadAheadMemory::Entry::spare_bytes() {
  if (fork_generation_ != ForkGeneration::now()) return 0;
  const MutexLock lock(mutex_);
  return owner_ ? owner_->spare_bytes() : 0;
}

void ReadAheadMemory::Entry::give_back(std::uint64_t bytes) {
  if (fork_generation_ != ForkGeneration::now()) return;
  const MutexLock lock(mutex_);
  if (owner_) owner_->give_back(bytes);
}

namespace {

// Releases a mutex for a scope.
class Unlocked {
 public:
  explicit Unlocked(Mutex& mutex) NO_THREAD_SAFETY_ANALYSIS : mutex_(mutex) { mutex_.unlock(); }
  ~Unlocked() NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace

std::uint64_t Reservation::Account::spare_read_ahead() {
  const auto readers = read_ahead;
  const Unlocked unlocked(Registry::get().mutex);
  std::uint64_t spare = 0;
  for (const auto& reader : readers) spare += reader->spare_bytes();
  return spare;
}

void Reservation::Account::shorten_read_ahead(std::uint64_t to) {
  const auto readers = read_ahead;
  for (const auto& reader : readers) {
    const std::uint64_t more = beyond(uncached() - in_reads, to);
    if (more == 0) return;
    const Unlocked unlocked(Registry::get().mutex);
    reader->give_back(more);
  }
}

}  // namespace evenkeel
