// Memory that a reader fills, hands out, and gets back: chunks and training batches alike.
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

// One buffer: pages of the library's, or memory that the caller gave (then `pages` is empty).
struct LentMemory {
  std::byte* data = nullptr;
  Pages pages;
  explicit operator bool() const { return data != nullptr; }
};

class LendingPool;
class ReadAhead;

// A buffer that was handed out. It goes back to its pool when the loan is destroyed, on any thread.
// It outlives the pool's owner. Moves, does not copy.
class Loan {
 public:
  Loan() = default;
  Loan(std::shared_ptr<LendingPool> pool, LentMemory memory);
  Loan(Loan&& other) noexcept = default;
  Loan& operator=(Loan&& other) noexcept;
  ~Loan() { give_back(); }

  std::byte* data() const { return memory_.data; }
  explicit operator bool() const { return static_cast<bool>(memory_); }
  // Gives back what lies beyond `end` to the system. Such a buffer is not used again.
  void trim(const std::byte* end) { memory_.pages.trim(end); }

 private:
  void give_back();
  std::shared_ptr<LendingPool> pool_;
  LentMemory memory_;
};

// A buffer for each slot of a ReadAhead. A batch is handed out in the buffer in which it lies; its
// slot is then empty until a buffer comes back. The reader's budget pays for a fixed number of
// buffers. A user who keeps more of them keeps their pages: `replace_lent` frees the empty slots,
// and `buffer` gives them new pages. Thread-safe; it calls the reader without its mutex held. In a
// child of fork, loans that end are unmapped: threads of the parent may have held the mutexes.
class LendingPool : public std::enable_shared_from_this<LendingPool> {
 public:
  // Buffers of `bytes`; `what` names their use in errors. Up to `spares` buffers that no slot needs
  // are kept for `take_spare`.
  LendingPool(std::uint64_t bytes, std::string what, std::size_t spares = 0);
  // A lent batch is given back to this reader when its slot has memory again.
  void serve(std::weak_ptr<ReadAhead> reader) EXCLUDES(mutex_);

  // A slot whose pages `share` pays for. It has none until `allocate` or `buffer`.
  void add_slot(Reservation share) EXCLUDES(mutex_);
  void add_slot(std::span<std::byte> memory) EXCLUDES(mutex_);  // of the caller's
  // Pages for all slots that have none: together, so that small buffers share huge pages, which
  // disks fill much faster.
  void allocate() EXCLUDES(mutex_);
  // What a slot takes of the budget.
  std::uint64_t slot_bytes() const;

  // The buffer of a slot; new pages where it has none. Throws Error (kInvalid) where that would be
  // memory of the caller's, which is lent.
  std::byte* buffer(std::size_t slot) EXCLUDES(mutex_);
  // Hands out the buffer of a slot, which holds batch `number`.
  Loan lend(std::size_t slot, std::uint64_t number) EXCLUDES(mutex_);
  // Frees all slots whose buffers are lent: they get new pages, which the budget does not pay for.
  // Memory of the caller's cannot be replaced; false when all of it is lent.
  bool replace_lent() EXCLUDES(mutex_);
  // Leaves `count` slots, while nothing is read. The batches `taken` are still lent: each has the
  // slot of its number modulo count.
  void keep_slots(std::size_t count, std::span<const std::uint64_t> taken) EXCLUDES(mutex_);
  // A buffer that belongs to no slot: one that came back, else new pages.
  Loan take_spare() EXCLUDES(mutex_);
  // After this, buffers that come back are unmapped, and no thread is in the reader for their sake:
  // its owner may destroy what it uses.
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
  // The reader, until `leave`; nothing after `close`.
  std::shared_ptr<ReadAhead> enter() REQUIRES(mutex_);
  void leave(std::shared_ptr<ReadAhead> reader) EXCLUDES(mutex_);

  const std::uint64_t bytes_;
  const std::string what_;
  const std::size_t most_spares_;
  const std::uint64_t fork_generation_ = ForkGeneration::now();
  Mutex mutex_;
  std::weak_ptr<ReadAhead> reader_ GUARDED_BY(mutex_);
  int in_reader_ GUARDED_BY(mutex_) = 0;  // threads
  CondVar reader_left_;
  bool closed_ GUARDED_BY(mutex_) = false;
  std::vector<Slot> slots_ GUARDED_BY(mutex_);
  std::vector<Empty> empty_ GUARDED_BY(mutex_);  // slots whose buffer is lent, longest ago first
  std::vector<LentMemory> spares_ GUARDED_BY(mutex_);
  bool of_caller_ GUARDED_BY(mutex_) = false;
};

}  // namespace evenkeel
