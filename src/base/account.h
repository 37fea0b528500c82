// The account behind copies of a Budget: who holds what.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/read_ahead_memory.h"
#include "base/reclaimable.h"
#include "evenkeel/budget.h"
#include "evenkeel/error.h"

namespace evenkeel {

// One use of a budget, for the arithmetic in messages.
struct Reservation::Holder {
  std::uint64_t bytes;
  std::string what;
  bool of_read = false;      // given back when a read is done
  bool in_children = false;  // counts in children of fork, too
  bool inherited = false;    // the parent's, and not counted in this process
};

// What one cache holds.
struct Reservation::Cache {
  std::string what;
  std::uint64_t bytes = 0;
  std::weak_ptr<Reclaimer> reclaimer = {};
  bool inherited = false;  // the parent's: not counted in this process, and not to be called
};

// A reader that can give back memory, until it is closed.
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

// Holders stay here when reservations move: one thread may name them while another moves its own.
// The mutex of all accounts guards its members.
struct Reservation::Account {
  struct Registry;

  explicit Account(std::uint64_t bytes, std::string origin_text, bool follows_pressure = false);
  ~Account();
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  // Changed under the mutex, read without.
  std::atomic<std::uint64_t> limit;
  std::string origin;  // where the number comes from, for describe()
  const bool automatic;
  const std::uint64_t began_with;  // the first limit
  const std::uint64_t number;      // of the accounts of a process, from 1
  std::uint64_t in_use = 0, peak = 0;
  std::uint64_t in_reads = 0;  // the part of in_use that reads hold
  std::uint64_t cached = 0;    // the part of in_use that caches hold
  std::list<Holder> holders;
  std::list<Cache> caches;
  std::vector<std::shared_ptr<ReadAheadMemory::Entry>> read_ahead;
  // Reservations for which caches give way at the moment: no cache grows meanwhile.
  int reclaiming = 0;
  // Reads that wait for memory, by number: the lowest is served first.
  std::set<std::uint64_t> waiting;
  std::uint64_t next_waiting = 0;

  // What others than caches hold, and the most of it in this period and the one before.
  std::uint64_t uncached() const { return in_use - cached; }
  std::uint64_t most_this_period = 0, most_last_period = 0;
  std::int64_t period_began_ns;
  std::uint64_t most_uncached_lately();

  static std::uint64_t beyond(std::uint64_t most, std::uint64_t used) {
    return most > used ? most - used : 0;
  }
  // What others than caches may hold. Pressure takes from caches: what work needs stays granted.
  std::uint64_t most_uncached() const {
    return automatic ? std::max<std::uint64_t>(limit, began_with) : limit.load();
  }
  // What may still be reserved, if caches give way.
  std::uint64_t left() const { return beyond(most_uncached(), uncached()); }

  // nullptr when it does not fit beside what is reserved, caches included.
  Holder* take(std::uint64_t bytes, std::string_view what, bool of_read);
  // The same, with caches giving way. Lets go of the mutex while they do.
  Holder* take_from_caches(std::uint64_t bytes, std::string_view what, bool of_read);
  // Sets a limit that is not below what others than caches hold, and has caches give way to it.
  // Lets go of the mutex while they do.
  void set_limit(std::uint64_t bytes);
  // What holds the budget, in words: " (read buffers 4,096, results 100 in 2)".
  std::string holders_in_words() const;
  // `spare`: what readers could give back.
  Error refused_resize(std::uint64_t bytes, std::uint64_t spare) const;
  // What readers could give back, and having them do so until others than caches and reads hold no
  // more than `to`, or none can spare anything. The mutex is let go of meanwhile.
  std::uint64_t spare_read_ahead();
  void shorten_read_ahead(std::uint64_t to);
  // Has caches free `bytes`, the largest first. The caller holds the mutex, which is let go of
  // meanwhile: look again what fits.
  void reclaim(std::uint64_t bytes);
  bool grow(Cache& cache, std::uint64_t bytes);
  void shrink(Cache& cache, std::uint64_t bytes);
  std::uint64_t share_of(const Cache& cache) const;  // if all caches in use hold the same

  bool fits_beside_reads(std::uint64_t bytes) const {
    return bytes <= beyond(most_uncached(), uncached() - in_reads);
  }
  void give_back(const Holder* holder);
  // In a child of fork: what the parent holds does not count here.
  void disinherit();
  std::vector<BudgetUse> uses(bool with_caches) const;
  Error refusal(std::uint64_t bytes, std::string_view what) const;
};

// All accounts of the process. One mutex for them, held across fork: reserving is rare, and a child
// must find every account whole, whatever the parent's threads were doing.
struct Reservation::Account::Registry {
  static Registry& get();

  Mutex mutex;
  // Signals that memory was given back. A child of fork has one of its own, the last: threads of
  // its parent may be waiting on the others, which therefore cannot be destroyed.
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
