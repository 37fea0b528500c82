// The account that all copies of a Budget share: what holds how many bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/read_ahead_memory.h"
#include "base/reclaimable.h"
#include "evenkeel/budget.h"
#include "evenkeel/error.h"

namespace evenkeel {

// One reservation, with its name for messages.
struct Reservation::Holder {
  std::uint64_t bytes;
  std::string what;
  bool of_read = false;      // of a read: given back when the read is done
  bool in_children = false;  // counts in children of fork, too
  bool inherited = false;    // made by the parent before fork, and not counted in this process
};

// What one cache holds.
struct Reservation::Cache {
  std::string what;
  std::uint64_t bytes = 0;
  std::weak_ptr<Reclaimer> reclaimer = {};
  bool inherited = false;  // made by the parent before fork: not counted, and must not be called
};

// A reader that can give back memory. After close() its owner is not called any more.
class ReadAheadMemory::Entry {
 public:
  explicit Entry(Owner& owner);
  void close() EXCLUDES(mutex_);
  std::uint64_t spare_bytes() EXCLUDES(mutex_);
  void give_back(std::uint64_t bytes) EXCLUDES(mutex_);

 private:
  const std::uint64_t fork_generation_;
  Mutex mutex_;
  Owner* owner_ GUARDED_BY(mutex_);
};

// A Holder stays at its address while its Reservation moves, so one thread can list all holders
// while another moves a reservation. The mutex of the Registry guards all members.
struct Reservation::Account {
  struct Registry;

  explicit Account(std::uint64_t bytes, std::string origin_text, bool follows_pressure = false);
  ~Account();
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  // Written with the mutex, read without it.
  std::atomic<std::uint64_t> limit;
  std::string origin;  // where the number comes from, for describe()
  const bool automatic;
  const std::uint64_t began_with;  // the first limit
  const std::uint64_t number;      // number of the account in this process, from 1
  std::uint64_t in_use = 0, peak = 0;
  std::uint64_t in_reads = 0;  // the part of in_use that reads hold
  std::uint64_t cached = 0;    // the part of in_use that caches hold
  std::unordered_map<const Holder*, std::unique_ptr<Holder>> holders;  // by their addresses
  std::list<Cache> caches;
  std::vector<std::shared_ptr<ReadAheadMemory::Entry>> read_ahead;
  // Number of reservations for which caches are freeing memory now. No cache grows meanwhile.
  int reclaiming = 0;
  // Numbers of the reads that wait for memory. The lowest is served first.
  std::set<std::uint64_t> waiting;
  std::uint64_t next_waiting = 0;

  // What is reserved outside caches, and its peak in this period and in the previous one.
  std::uint64_t uncached() const { return in_use - cached; }
  std::uint64_t most_this_period = 0, most_last_period = 0;
  std::int64_t period_began_ns;
  std::uint64_t most_uncached_lately();

  static std::uint64_t beyond(std::uint64_t most, std::uint64_t used) {
    return most > used ? most - used : 0;
  }
  // What may be reserved outside caches. Memory pressure shrinks only caches: reads and loaders may
  // still use the initial limit.
  std::uint64_t most_uncached() const {
    return automatic ? std::max<std::uint64_t>(limit, began_with) : limit.load();
  }
  // What may still be reserved if caches free their memory.
  std::uint64_t left() const { return beyond(most_uncached(), uncached()); }

  // Returns nullptr if it does not fit beside what is reserved, including caches.
  Holder* take(std::uint64_t bytes, std::string_view what, bool of_read);
  // The same, but has caches free memory for it. Releases the mutex meanwhile.
  Holder* take_from_caches(std::uint64_t bytes, std::string_view what, bool of_read);
  // Sets the limit and has caches free what exceeds it. Releases the mutex meanwhile. The limit
  // must not be below what is reserved outside caches and reads.
  void set_limit(std::uint64_t bytes);
  // What holds the budget, for messages: " (read buffers 4,096, results 100 in 2)".
  std::string holders_in_words() const;
  // `spare`: what readers could give back.
  Error refused_resize(std::uint64_t bytes, std::uint64_t spare) const;
  // spare_read_ahead returns what readers could give back. shorten_read_ahead has them give memory
  // back until no more than `to` is reserved outside caches and reads, or no reader can spare more.
  // Both release the mutex meanwhile.
  std::uint64_t spare_read_ahead();
  void shorten_read_ahead(std::uint64_t to);
  // Has the largest cache free `bytes`. The caller holds the mutex. It is released meanwhile, so
  // the caller must check again what fits.
  void reclaim(std::uint64_t bytes);
  bool grow(Cache& cache, std::uint64_t bytes);
  void shrink(Cache& cache, std::uint64_t bytes);
  std::uint64_t share_of(const Cache& cache) const;  // if all caches in use have equal shares

  bool fits_beside_reads(std::uint64_t bytes) const {
    return bytes <= beyond(most_uncached(), uncached() - in_reads);
  }
  void give_back(const Holder* holder);
  // Called in a child of fork: stops counting what the parent holds.
  void disinherit();
  std::vector<BudgetUse> uses(bool with_caches) const;
  Error refusal(std::uint64_t bytes, std::string_view what) const;
};

// All accounts of the process. They share one mutex, because reserving is rare. It is held across
// fork, so that a child finds every account in a consistent state.
struct Reservation::Account::Registry {
  static Registry& get();

  Mutex mutex;
  // Signals that memory was given back. A child of fork adds its own at the end. The others cannot
  // be destroyed there, because threads of the parent may have been waiting on them.
  std::vector<CondVar*> changed_of_processes{new CondVar};
  CondVar& changed() { return *changed_of_processes.back(); }
  std::set<Account*> accounts;
  std::atomic<std::uint64_t> next_number = 1;

 private:
  static void lock_all();
  static void unlock_all();
  static void start_child();
};

}  // namespace evenkeel
