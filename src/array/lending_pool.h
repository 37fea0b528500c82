// Memory that a reader fills, hands out and gets back, for chunks and training batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/mutex.h"
#include "base/per_process.h"

namespace evenkeel {

// One buffer: pages that the library allocated, or memory of the caller (then `pages` is empty).
struct LentMemory {
  std::byte* data = nullptr;
  Pages pages;
  explicit operator bool() const { return data != nullptr; }
};

class LendingPool;
class ReadAhead;

// A buffer that was handed out. The destructor returns it to its pool, on any thread. It may
// outlive the pool's owner. Movable, not copyable.
class Loan {
 public:
  Loan() = default;
  Loan(std::shared_ptr<LendingPool> pool, LentMemory memory);
  Loan(Loan&& other) noexcept = default;
  Loan& operator=(Loan&& other) noexcept;
  ~Loan() { give_back(); }

  std::byte* data() const { return memory_.data; }
  explicit operator bool() const { return static_cast<bool>(memory_); }
  // Frees the pages after `end`. Such a buffer is not used again.
  void trim(const std::byte* end) { memory_.pages.trim(end); }

 private:
  void give_back();
  std::shared_ptr<LendingPool> pool_;
  LentMemory memory_;
};

// Owns a buffer for each slot of a ReadAhead. A batch is handed out in the buffer into which it was
// read; its slot is then empty until a buffer comes back. The reader's budget covers a fixed number
// of buffers. A user who keeps more of them keeps their pages: `replace_lent` frees the empty
// slots, and `buffer` gives them new pages. Thread-safe; it calls the reader without holding its
// mutex. In a child of fork, loans that end are unmapped, because threads of the parent may have
// held the mutexes.
class LendingPool : public std::enable_shared_from_this<LendingPool> {
 public:
  // Buffers of `bytes`; `what` names their use in errors. Up to `spares` buffers that no slot needs
  // are kept for `take_spare`.
  LendingPool(std::uint64_t bytes, std::string what, std::size_t spares = 0);
  // Sets the reader. A lent batch is given back to it when its slot has memory again.
  void serve(std::weak_ptr<ReadAhead> reader) EXCLUDES(mutex_);

  // Adds a slot whose pages `share` covers. It has no pages until `allocate` or `buffer`.
  void add_slot(Reservation share) EXCLUDES(mutex_);
  void add_slot(std::span<std::byte> memory) EXCLUDES(mutex_);  // of the caller
  // Allocates pages for all slots that have none. They are adjacent, so that small buffers share
  // huge pages, which disks fill much faster.
  void allocate() EXCLUDES(mutex_);
  // Bytes that a slot takes from the budget.
  std::uint64_t slot_bytes() const;

  // The buffer of a slot; allocates pages if it has none. Throws Error (kInvalid) if the slot has
  // memory of the caller that is lent.
  std::byte* buffer(std::size_t slot) EXCLUDES(mutex_);
  // Hands out the buffer of a slot, which holds batch `number`.
  Loan lend(std::size_t slot, std::uint64_t number) EXCLUDES(mutex_);
  // Frees all slots whose buffers are lent. They get new pages, which the budget does not cover.
  // Memory of the caller cannot be replaced; returns false if all of it is lent.
  bool replace_lent() EXCLUDES(mutex_);
  // Keeps only `count` slots. Nothing may be read meanwhile. The batches `taken` are still lent:
  // each has the slot of its number modulo count.
  void keep_slots(std::size_t count, std::span<const std::uint64_t> taken) EXCLUDES(mutex_);
  // A buffer that belongs to no slot: one that came back, or new pages.
  Loan take_spare() EXCLUDES(mutex_);
  // After this, buffers that come back are unmapped. No loan is calling the reader any more, so its
  // owner may destroy what it uses.
  void close() EXCLUDES(mutex_);

 private:
  friend class Loan;
  struct Slot {
    Reservation share;
    LentMemory memory;
  };
  struct Empty {
    std::size_t slot;
    std::uint64_t number;
  };
  void came_back(LentMemory memory) EXCLUDES(mutex_);
  // Returns the reader, to be used until `leave`; nullptr after `close`.
  std::shared_ptr<ReadAhead> enter() REQUIRES(mutex_);
  void leave(std::shared_ptr<ReadAhead> reader) EXCLUDES(mutex_);

  const std::uint64_t bytes_;
  const std::string what_;
  const std::size_t most_spares_;
  const std::uint64_t fork_generation_ = ForkGeneration::now();
  Mutex mutex_;
  std::weak_ptr<ReadAhead> reader_ GUARDED_BY(mutex_);
  int in_reader_ GUARDED_BY(mutex_) = 0;  // number of threads
  CondVar reader_left_;
  bool closed_ GUARDED_BY(mutex_) = false;
  std::vector<Slot> slots_ GUARDED_BY(mutex_);
  std::vector<Empty> empty_ GUARDED_BY(mutex_);  // slots whose buffer is lent, oldest first
  std::vector<LentMemory> spares_ GUARDED_BY(mutex_);
  bool of_caller_ GUARDED_BY(mutex_) = false;
};

}  // namespace evenkeel
