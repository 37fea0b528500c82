#include "base/reclaimable.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/account.h"
#include "base/automatic_budget.h"
#include "base/sys.h"

namespace evenkeel {

// Buffers of reads are short-lived. A cache that grew into their memory would be cut down each
// time.
std::uint64_t Reservation::Account::most_uncached_lately() {
  constexpr std::int64_t kPeriodNs = 2'000'000'000;
  const std::int64_t now = sys::monotonic_ns(), age = now - period_began_ns;
  if (age < 0 || age >= kPeriodNs) {
    most_last_period = age < 0 || age >= 2 * kPeriodNs ? uncached() : most_this_period;
    most_this_period = uncached();
    period_began_ns = now;
  }
  return std::max({most_this_period, most_last_period, uncached()});
}

Reservation::Holder* Reservation::Account::take_from_caches(std::uint64_t bytes,
                                                            std::string_view what, bool of_read) {
  for (;;) {
    if (Holder* holder = take(bytes, what, of_read)) return holder;
    if (bytes > left()) return nullptr;
    if (bytes > beyond(limit, uncached())) limit = uncached() + bytes;  // of an automatic budget
    reclaim(bytes - beyond(limit, in_use));
  }
}

// Unlocks the mutex, because a cache that frees memory locks it to report that. The cache may also
// be destroyed here, if this thread holds the last reference.
void Reservation::Account::reclaim(std::uint64_t bytes) NO_THREAD_SAFETY_ANALYSIS {
  const Cache* largest = nullptr;
  for (const Cache& cache : caches) {
    if (cache.inherited || cache.reclaimer.expired()) continue;
    if (!largest || cache.bytes > largest->bytes) largest = &cache;
  }
  std::shared_ptr<Reclaimer> reclaimer = largest ? largest->reclaimer.lock() : nullptr;
  Mutex& mutex = Registry::get().mutex;
  const std::uint64_t cached_before = cached;
  ++reclaiming;
  mutex.unlock();
  if (reclaimer) {
    reclaimer->reclaim(bytes);
    reclaimer.reset();
  }
  mutex.lock();
  if (cached >= cached_before) {
    // Other threads are using the memory of the cache, or one is destroying it. Let them run.
    mutex.unlock();
    std::this_thread::yield();
    mutex.lock();
  }
  --reclaiming;
}

std::uint64_t Reservation::Account::share_of(const Cache& cache) const {
  std::uint64_t sharers = 1;
  for (const Cache& other : caches) {
    if (!other.inherited && other.bytes > 0 && &other != &cache) ++sharers;
  }
  return left() / sharers;
}

bool Reservation::Account::grow(Cache& cache, std::uint64_t bytes) {
  if (cache.inherited || cache.reclaimer.expired()) return false;
  const auto fits = [&] {
    return reclaiming == 0 && waiting.empty() &&
           bytes <= beyond(limit, most_uncached_lately() + cached);
  };
  if (!fits()) {
    const bool is_largest = std::ranges::none_of(
        caches, [&](const Cache& other) { return !other.inherited && other.bytes > cache.bytes; });
    if (reclaiming > 0 || !waiting.empty() || is_largest) return false;
    if (cache.bytes + bytes > share_of(cache)) return false;
    reclaim(bytes);
    if (!fits()) return false;
  }
  cache.bytes += bytes;
  cached += bytes;
  in_use += bytes;
  peak = std::max(peak, in_use);
  return true;
}

void Reservation::Account::shrink(Cache& cache, std::uint64_t bytes) {
  cache.bytes -= bytes;
  if (cache.inherited) return;
  cached -= bytes;
  in_use -= bytes;
  if (!waiting.empty()) Registry::get().changed().notify_all();
}

ReclaimableMemory::ReclaimableMemory(const Budget& budget, std::string_view what)
    : account_(budget.account_), cache_([&] {
        const MutexLock lock(Reservation::Account::Registry::get().mutex);
        account_->caches.push_back({std::string(what)});
        return &account_->caches.back();
      }()) {}

ReclaimableMemory::~ReclaimableMemory() {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  account_->shrink(*cache_, cache_->bytes);
  account_->caches.remove_if([&](const Reservation::Cache& one) { return &one == cache_; });
}

void ReclaimableMemory::serve(std::weak_ptr<Reclaimer> reclaimer) {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  cache_->reclaimer = std::move(reclaimer);
}

bool ReclaimableMemory::try_grow(std::uint64_t bytes) {
  if (account_->automatic) AutomaticBudgets::get().watch();  // also in a child of fork
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  return account_->grow(*cache_, bytes);
}

void ReclaimableMemory::shrink(std::uint64_t bytes) {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  account_->shrink(*cache_, bytes);
}

std::uint64_t ReclaimableMemory::bytes() const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  return cache_->bytes;
}

std::uint64_t ReclaimableMemory::most_bytes() const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  return std::max(account_->share_of(*cache_), cache_->bytes);
}

}  // namespace evenkeel
