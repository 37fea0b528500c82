// Memory for reading ahead. A reader with less of it is slower, but still works.
#pragma once

#include <cstdint>
#include <memory>

#include "evenkeel/budget.h"

namespace evenkeel {

// Registers a reader that can work with less memory than it has reserved. Budget::resize calls it
// after caches have freed all they can. Thread-safe.
class ReadAheadMemory {
 public:
  // Called by the thread that resizes, without locks of the budget. Exceptions propagate through
  // Budget::resize.
  class Owner {
   public:
    virtual std::uint64_t spare_bytes() = 0;  // what it could give back
    // Gives back `bytes` of its reservations, or all that it can spare.
    virtual void give_back(std::uint64_t bytes) = 0;

   protected:
    ~Owner() = default;
  };
  // `owner` may be called until this object is destroyed. The destructor waits for a call in
  // progress.
  ReadAheadMemory(const Budget& budget, Owner& owner);
  ~ReadAheadMemory();
  ReadAheadMemory(const ReadAheadMemory&) = delete;
  ReadAheadMemory& operator=(const ReadAheadMemory&) = delete;

  class Entry;  // in the account

 private:
  const std::shared_ptr<Reservation::Account> account_;
  const std::shared_ptr<Entry> entry_;
};

}  // namespace evenkeel
