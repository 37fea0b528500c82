// Memory for reading ahead: with less of it, a reader is slower, but works.
#pragma once

#include <cstdint>
#include <memory>

#include "evenkeel/budget.h"

namespace evenkeel {

// Names a reader that can do with less than it has reserved. Budget::resize asks it when caches
// have given all they have. Thread-safe.
class ReadAheadMemory {
 public:
  // Called by the thread that resizes, without locks of the budget. What they throw is thrown by
  // Budget::resize.
  class Owner {
   public:
    virtual std::uint64_t spare_bytes() = 0;  // what it could give back
    // Gives back so much of its reservations, or all that it can spare.
    virtual void give_back(std::uint64_t bytes) = 0;

   protected:
    ~Owner() = default;
  };
  // `owner` is called until this object is destroyed, which waits for a call under way.
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
