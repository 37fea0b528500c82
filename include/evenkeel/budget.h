// The number of bytes that a dataset may occupy in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/bytes.h"
#include "evenkeel/compiler.h"

// Internal classes, declared before the pragma so that a shared library does not export them.
namespace evenkeel {
class AutomaticBudgets;
class LiveBudgets;
class ReadAheadMemory;
class ReclaimableMemory;
}  // namespace evenkeel

#pragma GCC visibility push(default)

namespace evenkeel {

// A share of a budget. The destructor gives it back. Movable, not copyable.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&&) noexcept;
  Reservation& operator=(Reservation&&) noexcept;
  ~Reservation();
  std::uint64_t bytes() const { return bytes_; }
  void release();  // gives it back now
  // By default a child of fork starts without the reservations of its parent: it cannot use the
  // buffers of a loader, for example. Call this for memory that a child continues to use, such as
  // the buffers of an array, so that it counts there, too.
  void keep_in_children();

 private:
  friend class Budget;
  friend class AutomaticBudgets;
  friend class LiveBudgets;        // src/base/live_budgets.h
  friend class ReclaimableMemory;  // src/base/reclaimable.h
  friend class ReadAheadMemory;    // src/base/read_ahead_memory.h
  struct Account;
  struct Holder;
  struct Cache;
  Reservation(std::shared_ptr<Account> account, Holder* holder);
  std::shared_ptr<Account> account_;
  Holder* holder_ = nullptr;  // in the account
  std::uint64_t bytes_ = 0;
};

// How much of a budget one use holds, in one or several reservations.
struct BudgetUse {
  std::string what;  // as given to Budget::reserve: "read buffers"
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;  // reservations
};

// The number of bytes that a dataset may occupy: buffers that the library allocates, resident pages
// of its mappings, and page-cache pages that its reads bring in. Bytes are reserved before they are
// used, so the limit is never exceeded. A reservation that does not fit fails, and the message
// shows the arithmetic. Unreserved bytes may hold cached blocks, which are freed as soon as
// something else is reserved. Copies share one account: arrays opened with the same Budget stay
// within it together. A child of fork has its own budget of the same size; see
// Reservation::keep_in_children. Thread-safe. A moved-from budget may only be destroyed or assigned
// to.
class Budget {
 public:
  // One eighth of the memory available to this process: MemAvailable, or what the memory cgroups
  // (v1 and v2) around it leave, whichever is less.
  Budget();
  Budget(std::uint64_t bytes);  // NOLINT: implicit, for {.budget = 64_MiB}
  // "64MiB" as in parse_size. "1GiB/node" is divided by the number of processes that share the
  // node. "auto" is `automatic`.
  static Budget parse(std::string_view text, std::uint64_t processes_on_node = 1);
  // A budget whose limit follows memory pressure, mainly for caches. It starts as the default
  // budget. It grows while memory is free. It shrinks within 100 ms when memory runs short or tasks
  // wait for memory; caches are freed then. It never shrinks below 16 MiB or below what is
  // reserved. A read still gets the memory it needs, up to the initial limit, so that work
  // continues under pressure. One thread of the library watches memory for all automatic budgets of
  // a process.
  static Budget automatic();
  bool is_automatic() const;

  // Changes the limit of all copies. If the limit shrinks, caches are freed first, then loaders
  // read fewer batches ahead, down to two each, and the call waits for reads in progress. Throws
  // Error (kBudget) with the arithmetic if `bytes` is less than what buffers, loaders and chunks
  // still hold then. If the limit grows, caches may grow, and reads that wait for memory continue.
  // Throws Error (kInvalid) for an automatic budget.
  void resize(std::uint64_t bytes) const;

  std::uint64_t limit() const;
  std::uint64_t in_use() const;  // reserved now, caches included
  std::uint64_t cached() const;  // the part of in_use that caches hold; reservations free it
  std::uint64_t peak() const;    // the most that was ever reserved
  std::uint64_t left() const;    // what may still be reserved: limit - (in_use - cached)
  // "64 MiB (67,108,864 bytes), one eighth of 512 MiB available (memory cgroup limit)", followed by
  // what caches hold, if anything.
  std::string describe() const;
  std::vector<BudgetUse> uses() const;  // what holds it now, by name

  // Throws Error (kBudget) if `bytes` more do not fit; the message lists what holds the budget.
  // `what` names the use in such messages: "read buffers".
  Reservation reserve(std::uint64_t bytes, std::string_view what) const;
  std::optional<Reservation> try_reserve(std::uint64_t bytes, std::string_view what) const;

  // Reserves the memory of one read, which is given back when the read is done. If other reads hold
  // the memory, the call waits for them, in the order of the calls. It never waits for anything
  // else: if the memory would not fit even without other reads, it throws Error (kBudget) at once.
  // A read must reserve all its memory in one call and hold none while it waits, so that two reads
  // cannot wait for each other. `while_waiting` is called every 50 ms; an exception from it ends
  // the wait.
  Reservation reserve_for_read(std::uint64_t bytes, std::string_view what,
                               const std::function<void()>& while_waiting = {}) const;
  // The same without waiting: empty if it does not fit now or if other reads are already waiting.
  std::optional<Reservation> try_reserve_for_read(std::uint64_t bytes, std::string_view what) const;
  // Whether `bytes` would fit if no read were in progress.
  bool fits_beside_reads(std::uint64_t bytes) const;
  // Throws the Error (kBudget) of `reserve` if they would not.
  void require_fits_beside_reads(std::uint64_t bytes, std::string_view what) const;

 private:
  friend class ReclaimableMemory;
  friend class ReadAheadMemory;
  friend class AutomaticBudgets;
  explicit Budget(std::shared_ptr<Reservation::Account> account);
  // Sets the limit to `bytes`, or to what is reserved if that is more.
  void follow(std::uint64_t bytes) const;
  // Call before using memory of an automatic budget: a child of fork has no watching thread yet.
  void keep_watched() const;
  std::shared_ptr<Reservation::Account> account_;
};

// The memory available to this process, of which the default budget is an eighth.
struct AvailableMemory {
  std::uint64_t bytes = 0;
  // Which limit decided: "MemAvailable", "memory cgroup v2 limit of /user.slice/..."
  std::string source;
};
AvailableMemory available_memory();

}  // namespace evenkeel

#pragma GCC visibility pop
