// What each thread needs to copy bytes from the page cache: memory, descriptors, and what it knows
// about the files. For the engine `auto` (cache_first.cc).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "base/mutex.h"
#include "engine/copy_team.h"
#include "engine/engine.h"
#include "engine/files.h"
#include "engine/free_signal.h"
#include "engine/page_cache.h"
#include "evenkeel/budget.h"

namespace evenkeel {

// The memory of one thread: a buffer to copy to, and the cached pages that it maps briefly.
struct Scratch {
  Scratch(const Budget& budget, std::uint64_t bytes);
  void keep_in_children();
  std::uint64_t most_mapped() const { return copies.size(); }
  PageBuffer copies;
  Reservation mapped;
};

// For two threads; only one if the budget has no room for two. Copying from the cache takes
// processor time, so two threads are faster than one.
using ThreadScratch = std::array<std::optional<Scratch>, 2>;
ThreadScratch make_scratch(const Budget& budget, std::uint64_t bytes);

// Used by one thread at a time; see ThreadStates.
struct ThreadState {
  ThreadState(const Layout& layout, Scratch* thread_scratch);

  Mutex mutex;
  std::atomic<std::thread::id> runner;                     // the thread in `run` with this state
  std::unique_ptr<Scratch> own_scratch GUARDED_BY(mutex);  // of the third thread and later ones
  Reservation own_share GUARDED_BY(mutex);
  Scratch* scratch GUARDED_BY(mutex);
  std::atomic<std::uint64_t> bytes = 0;  // taken from the page cache
  FileSet files GUARDED_BY(mutex);
  // Made when a file is first read.
  std::vector<std::unique_ptr<Residency>> residency GUARDED_BY(mutex);
  std::uint32_t misses GUARDED_BY(mutex) = 0;  // in a row
  // Since the engine last decided whether most extents are cached.
  std::uint64_t asked GUARDED_BY(mutex) = 0, served GUARDED_BY(mutex) = 0;
  bool in_rest GUARDED_BY(mutex) = false;  // this run has called the other engine
};

// A copy that any of several threads may make.
struct CachedCopy {
  Extent extent;
  Target target;
  int fd = -1;
  bool done = false;
};

// The copying threads. Whoever has the team also has `copies`.
struct CopyingThreads {
  static constexpr std::size_t kMostCopies = 1024;

  explicit CopyingThreads(std::size_t helpers) : team(helpers) { copies.reserve(kMostCopies); }
  static std::uint64_t memory(std::size_t helpers) {
    return helpers * CopyTeam::kMemoryOfThread + kMostCopies * sizeof(CachedCopy);
  }
  Reservation share;
  CopyTeam team;
  HelpMeter meter;
  std::vector<CachedCopy> copies;
};

// The states of a process. There are as many from the start as there is ThreadScratch. More are
// added when all are in use, up to the number of processors, while the budget has many times their
// memory left. None is removed. Thread-safe.
class ThreadStates {
 public:
  static constexpr std::size_t kMostThreads = 64;
  // With more files, two threads are the most: more would need too many descriptors.
  static constexpr std::uint64_t kMostFiles = 8;

  // All three must outlive it.
  ThreadStates(const Layout& layout, const Budget& budget, ThreadScratch& scratch);
  ~ThreadStates();
  ThreadStates(const ThreadStates&) = delete;
  ThreadStates& operator=(const ThreadStates&) = delete;

  // Locks a state for a run: the first that is free, or a new one, or, if none can be added, the
  // first that becomes free.
  class Lock {
   public:
    explicit Lock(ThreadStates& states);
    ~Lock() NO_THREAD_SAFETY_ANALYSIS;  // the constructor locked one of several
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ThreadState& state() const { return state_; }

   private:
    struct Counted {
      explicit Counted(std::atomic<std::size_t>& counted) : count(counted) { ++count; }
      ~Counted() { --count; }
      Counted(const Counted&) = delete;
      Counted& operator=(const Counted&) = delete;
      std::atomic<std::size_t>& count;
    };
    static ThreadState& choose(ThreadStates& states);
    const Counted running_;
    ThreadStates& states_;
    ThreadState& state_;
  };

  // Threads that have a Lock or wait for one.
  std::size_t running() const { return running_.load(std::memory_order_relaxed); }
  // The state that the calling thread has locked, or nullptr.
  ThreadState* of_this_thread();
  // Started at the first call. Returns nullptr if the budget or the system has no memory for them.
  CopyingThreads* copying_threads(std::size_t helpers) EXCLUDES(adding_);

  template <class Use>
  void for_each(const Use& use) {
    for (auto& slot : states_) {
      ThreadState* const state = slot.load(std::memory_order_acquire);
      if (!state) return;
      use(*state);
    }
  }

 private:
  // Returns nullptr if all are in use.
  ThreadState* lock_free_one() NO_THREAD_SAFETY_ANALYSIS;
  // Adds a state and locks it. Returns nullptr if the budget or the number of processors does not
  // allow another.
  ThreadState* add_locked() NO_THREAD_SAFETY_ANALYSIS;

  const Layout& layout_;
  const Budget& budget_;
  const std::size_t most_threads_;
  std::atomic<std::size_t> running_ = 0;
  FreeSignal freed_;  // a state
  std::atomic<CopyingThreads*> copying_ = nullptr;
  Mutex adding_;
  std::array<std::atomic<ThreadState*>, kMostThreads> states_{};  // filled from the front
};

}  // namespace evenkeel
