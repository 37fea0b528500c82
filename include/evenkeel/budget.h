// The limit that memory stays within.
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

// Of the library alone: declared before the pragma, so that a shared library does not export them.
namespace evenkeel {
class AutomaticBudgets;
class LiveBudgets;
class ReadAheadMemory;
class ReclaimableMemory;
}  // namespace evenkeel

#pragma GCC visibility push(default)

namespace evenkeel {

// A share of a budget, given back when it is destroyed. Moves, does not copy.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&&) noexcept;
  Reservation& operator=(Reservation&&) noexcept;
  ~Reservation();
  std::uint64_t bytes() const { return bytes_; }
  void release();  // give it back now
  // By default a child of fork starts without the reservations of its parent: buffers of a loader
  // are of no use there. Memory that a child goes on using, such as the buffers of an array, is
  // counted there, too.
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

// What one use holds of a budget, in one reservation or in several.
struct BudgetUse {
  std::string what;  // as given to Budget::reserve: "read buffers"
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;  // reservations
};

// A number of bytes that a dataset may occupy: buffers the library allocates, resident pages of
// mappings it makes, page-cache pages its reads bring in. Bytes are reserved before they are used,
// so the limit is never passed; what does not fit is refused with the arithmetic in the message.
// What is left may hold cached blocks, which give way at once when something else is reserved.
// Copies share one account: give the same Budget to several arrays and together they keep to it.
// A child of fork has a budget of its own, of the same size; see Reservation::keep_in_children.
// Thread-safe.
class Budget {
 public:
  // One eighth of the memory available to this process: MemAvailable, or what the memory cgroups
  // (v1 and v2) around it leave, whichever is less.
  Budget();
  Budget(std::uint64_t bytes);  // NOLINT: a number of bytes is a budget. {.budget = 64_MiB}
  // "64MiB" as in parse_size; "1GiB/node" is divided by the number of processes that share the
  // node.
  // "auto" is `automatic`.
  static Budget parse(std::string_view text, std::uint64_t processes_on_node = 1);
  // A budget whose limit follows memory pressure, for caches above all. It begins as the default
  // does. It grows while memory is free. It shrinks, within 100 ms, when memory gets short or when
  // tasks wait for memory: caches give way then. Never under 16 MiB, or under what else is held;
  // and what a read needs is granted up to the limit that the budget began with, so that work goes
  // on under pressure. One thread of the library watches for all such budgets of a process.
  static Budget automatic();
  bool is_automatic() const;

  // Changes the limit of all copies. Smaller: caches give way, then what loaders read ahead, down
  // to two batches each; reads under way are waited for. Throws Error (kBudget) with the arithmetic
  // if `bytes` is less than what buffers, loaders and chunks hold beside that. Larger: caches may
  // grow, and reads that wait for memory go on. Throws Error (kInvalid) for an automatic budget.
  void resize(std::uint64_t bytes) const;

  std::uint64_t limit() const;
  std::uint64_t in_use() const;  // reserved now, caches included
  std::uint64_t cached()
      const;                   // the part of in_use that caches hold; it gives way to reservations
  std::uint64_t peak() const;  // the most that was ever reserved
  std::uint64_t left() const;  // what may still be reserved: limit - (in_use - cached)
  // "64 MiB (67,108,864 bytes), one eighth of 512 MiB available (memory cgroup limit)"; and what
  // caches hold of it, if they do.
  std::string describe() const;
  std::vector<BudgetUse> uses() const;  // what holds it now, by name

  // Throws Error (kBudget) that lists what holds the budget now when `bytes` more do not fit.
  // `what` names the use in such messages: "read buffers".
  Reservation reserve(std::uint64_t bytes, std::string_view what) const;
  std::optional<Reservation> try_reserve(std::uint64_t bytes, std::string_view what) const;

  // For the memory of one read, which is given back when the read is done. Where other reads hold
  // what it needs, it waits for them, in the order of the calls. It never waits for anything else:
  // when it would not fit even if all other reads were done, it throws Error (kBudget) at once. So
  // that two reads cannot wait for each other, a read must ask for all its memory in one call, and
  // hold none while it waits. `while_waiting` is called now and then (every 50 ms); what it throws
  // ends the wait.
  Reservation reserve_for_read(std::uint64_t bytes, std::string_view what,
                               const std::function<void()>& while_waiting = {}) const;
  // The same without waiting: empty when it does not fit now, or when other reads wait already.
  std::optional<Reservation> try_reserve_for_read(std::uint64_t bytes, std::string_view what) const;
  // Whether `bytes` would fit if no read were under way.
  bool fits_beside_reads(std::uint64_t bytes) const;
  // Throws the Error (kBudget) of `reserve` when they would not.
  void require_fits_beside_reads(std::uint64_t bytes, std::string_view what) const;

 private:
  friend class ReclaimableMemory;
  friend class ReadAheadMemory;
  friend class AutomaticBudgets;
  explicit Budget(std::shared_ptr<Reservation::Account> account);
  // The limit becomes this, or what is held if that is more.
  void follow(std::uint64_t bytes) const;
  // To be called before memory of an automatic budget is used: a child of fork has no thread yet.
  void keep_watched() const;
  std::shared_ptr<Reservation::Account> account_;
};

// What the default budget is an eighth of, and which limit decided it.
struct AvailableMemory {
  std::uint64_t bytes = 0;
  std::string source;  // "MemAvailable", "memory cgroup v2 limit of /user.slice/..."
};
AvailableMemory available_memory();

}  // namespace evenkeel

#pragma GCC visibility pop
