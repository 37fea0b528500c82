// The rings of the engine `direct`: a queue, open files, and the memory that reads go to.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "engine/arena.h"
#include "engine/engines.h"
#include "engine/files.h"
#include "engine/free_signal.h"
#include "engine/queue.h"
#include "evenkeel/budget.h"

namespace evenkeel {

// A queue and the memory that its reads go to. One thread uses it at a time.
struct Ring {
  static constexpr std::uint32_t kDepth = 128;

  Ring(const Layout& layout, std::span<std::byte> buffers, QueueChoice choice);
  std::string describe();
  // Replaces a queue that failed with reads in flight. It waits for these reads first, because the
  // next reads use the same memory.
  void start_over() REQUIRES(mutex);
  bool uses_threads();

  const std::span<std::byte> memory;
  Reservation share;                    // for the second ring only
  std::atomic<std::thread::id> runner;  // the thread that is in `run` with this ring
  Mutex mutex;
  FileSet files GUARDED_BY(mutex);
  RingArena arena GUARDED_BY(mutex);
  std::string why GUARDED_BY(mutex);  // why io_uring is not used, or empty
  std::unique_ptr<ReadQueue> queue GUARDED_BY(mutex);
};

// The rings of a process. There is one at first; a second is created when two threads read at the
// same time.
class Rings {
 public:
  Rings(const Layout& layout, const Budget& budget, std::span<std::byte> memory,
        QueueChoice choice);
  ~Rings();
  Rings(const Rings&) = delete;
  Rings& operator=(const Rings&) = delete;

  // Locks a ring for a run.
  class Use {
   public:
    explicit Use(Rings& rings) : ring(rings.lock_one()), rings_(rings) {
      ring.runner = std::this_thread::get_id();
    }
    ~Use() NO_THREAD_SAFETY_ANALYSIS {  // lock_one locked one of two rings
      ring.runner = std::thread::id();
      ring.mutex.unlock();
      rings_.freed_.notify();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    Ring& ring;

   private:
    Rings& rings_;
  };

  // The ring that this thread uses in `run`.
  Ring& current();
  Ring& first() { return first_; }

 private:
  Ring& lock_one();
  Ring* lock_free_one();
  Ring* make_second() EXCLUDES(making_);

  const Layout& layout_;
  const Budget budget_;
  const QueueChoice choice_;
  const std::span<std::byte> for_second_;
  Ring first_;
  std::atomic<bool> two_allowed_;
  Mutex making_;
  std::atomic<Ring*> second_ = nullptr;
  FreeSignal freed_;
};

}  // namespace evenkeel
