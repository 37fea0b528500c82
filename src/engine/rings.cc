#include "engine/rings.h"

#include <fcntl.h>

#include <exception>
#include <utility>

#include "base/checked.h"
#include "base/sys.h"

namespace evenkeel {

std::atomic<QueueWrapper> queue_wrapper = nullptr;

namespace {

constexpr std::uint32_t kThreads = 16;
constexpr std::size_t kMostRegisteredFiles = 128;
// While one call waits for its last reads, another keeps the disk busy through a second ring. That
// ring has a quarter of the buffers: enough for the longest request, and the rest is enough for
// scans.
constexpr std::uint64_t kLeastBuffersOfTwo = 8 << 20;
constexpr std::size_t kMostFilesOfTwo = 8;  // more would be too many descriptors
constexpr std::uint64_t kMemoryOfRing = 64 << 10;
// Reads begin at pages of the buffers if there are enough pages: a virtual disk read 64 KiB a
// fifth faster than into memory aligned to 512 bytes, 16 KiB a twelfth.
constexpr std::uint64_t kPagesForEachRead = 2;

std::uint64_t second_bytes(const Layout& layout, std::uint64_t bytes) {
  if (bytes < kLeastBuffersOfTwo || layout.segments.size() > kMostFilesOfTwo) return 0;
  return round_down(bytes / 4, sys::page_size());
}

RingArena make_arena(std::uint64_t bytes) {
  const std::uint64_t page = sys::page_size();
  return RingArena(bytes, bytes >= Ring::kDepth * kPagesForEachRead * page ? page : 1);
}

}  // namespace

Ring::Ring(const Layout& layout, std::span<std::byte> buffers, QueueChoice choice)
    : memory(buffers), files(layout, O_DIRECT), arena(make_arena(buffers.size())) {
  const std::size_t registered =
      layout.segments.size() <= kMostRegisteredFiles ? layout.segments.size() : 0;
  if (choice == QueueChoice::kBest) queue = make_uring_queue(kDepth, memory, registered, why);
  if (choice == QueueChoice::kThreads) why = "io_uring was not asked for";
  if (!queue) queue = make_thread_queue(kThreads);
  if (const QueueWrapper wrap = queue_wrapper) queue = wrap(std::move(queue));
}

std::string Ring::describe() {
  const MutexLock lock(mutex);
  std::string how = "O_DIRECT, " + queue->describe();
  if (!why.empty()) how += " (" + why + ")";
  return how;
}

void Ring::start_over() {
  queue->abandon();
  queue = make_thread_queue(kThreads);
  arena = make_arena(memory.size());
}

bool Ring::uses_threads() {
  const MutexLock lock(mutex);
  return !why.empty();
}

Rings::Rings(const Layout& layout, const Budget& budget, std::span<std::byte> memory,
             QueueChoice choice)
    : layout_(layout),
      budget_(budget),
      choice_(choice),
      for_second_(memory.last(second_bytes(layout, memory.size()))),
      first_(layout, memory.first(memory.size() - for_second_.size()), choice),
      two_allowed_(!for_second_.empty() && !first_.uses_threads()) {}

Rings::~Rings() { delete second_.load(); }

Ring& Rings::current() {
  Ring* const second = second_.load(std::memory_order_acquire);
  return second && second->runner == std::this_thread::get_id() ? *second : first_;
}

// Returns nullptr if none is free.
Ring* Rings::lock_free_one() NO_THREAD_SAFETY_ANALYSIS {
  if (first_.mutex.try_lock()) return &first_;
  Ring* const second = second_.load(std::memory_order_acquire);
  return second && second->mutex.try_lock() ? second : nullptr;
}

Ring& Rings::lock_one() NO_THREAD_SAFETY_ANALYSIS {
  if (Ring* const free = lock_free_one()) return *free;
  if (Ring* const second = make_second(); second && second->mutex.try_lock()) return *second;
  return *freed_.wait([this] { return lock_free_one(); });
}

// Returns nullptr if the budget has no room for it, or if the system refuses another io_uring. A
// refusal is final: a second ring of threads would be too many threads.
Ring* Rings::make_second() {
  if (Ring* const made = second_.load(std::memory_order_acquire)) return made;
  if (!two_allowed_.load(std::memory_order_relaxed)) return nullptr;
  const MutexLock lock(making_);
  if (Ring* const made = second_.load(std::memory_order_acquire)) return made;
  if (!two_allowed_.load(std::memory_order_relaxed)) return nullptr;
  try {
    auto share = budget_.try_reserve(kMemoryOfRing, "a second ring");
    if (!share) return nullptr;
    auto ring = std::make_unique<Ring>(layout_, for_second_, choice_);
    if (!ring->uses_threads()) {
      ring->share = std::move(*share);
      second_.store(ring.get(), std::memory_order_release);
      return ring.release();
    }
  } catch (const std::exception&) {  // no memory: treated as a refusal
  }
  two_allowed_ = false;
  return nullptr;
}

}  // namespace evenkeel
