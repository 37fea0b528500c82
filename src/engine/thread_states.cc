#include "engine/thread_states.h"

#include <fcntl.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/sys.h"
#include "evenkeel/error.h"
#include "format/layout.h"

namespace evenkeel {
namespace {

// The scratch memory of the third thread and later ones. A longer extent without a target goes to
// the other engine.
constexpr std::uint64_t kSmallScratch = 128 << 10;
constexpr std::uint64_t kStateOfThread = 64 << 10;  // for the Residency of one file
// A thread is added only if the budget has at least this many times its memory left.
constexpr std::uint64_t kThreadsLeft = 16;
constexpr std::uint64_t kTeamsLeft = 64;  // like kThreadsLeft, for the copying threads

std::size_t most_threads(const Layout& layout) {
  if (layout.segments.size() > ThreadStates::kMostFiles) return 2;
  return std::clamp<std::size_t>(std::thread::hardware_concurrency(), 2,
                                 ThreadStates::kMostThreads);
}

}  // namespace

Scratch::Scratch(const Budget& budget, std::uint64_t bytes)
    : copies(budget, bytes, "copy buffer"),
      mapped(budget.reserve(copies.size() + 2 * sys::page_size(), "mapped cached pages")) {}

void Scratch::keep_in_children() {
  copies.keep_in_children();
  mapped.keep_in_children();
}

ThreadScratch make_scratch(const Budget& budget, std::uint64_t bytes) {
  ThreadScratch made;
  made[0].emplace(budget, bytes);
  try {
    made[1].emplace(budget, bytes);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBudget) throw;
  }
  for (auto& scratch : made) {
    if (scratch) scratch->keep_in_children();
  }
  return made;
}

// POSIX_FADV_RANDOM: if a page has just been evicted, a read brings in that page only.
ThreadState::ThreadState(const Layout& layout, Scratch* thread_scratch)
    : scratch(thread_scratch),
      files(layout, 0, POSIX_FADV_RANDOM),
      residency(layout.segments.size()) {}

ThreadStates::ThreadStates(const Layout& layout, const Budget& budget, ThreadScratch& scratch)
    : layout_(layout), budget_(budget), most_threads_(most_threads(layout)) {
  for (std::size_t i = 0; i < scratch.size() && scratch[i]; ++i) {
    states_[i] = new ThreadState(layout, &*scratch[i]);
  }
}

ThreadStates::~ThreadStates() {
  for (auto& state : states_) delete state.load();
  delete copying_.load();
}

ThreadState* ThreadStates::of_this_thread() {
  ThreadState* found = nullptr;
  for_each([&](ThreadState& state) {
    if (state.runner == std::this_thread::get_id()) found = &state;
  });
  return found;
}

ThreadState* ThreadStates::lock_free_one() {
  for (auto& slot : states_) {
    ThreadState* const state = slot.load(std::memory_order_acquire);
    if (!state || state->mutex.try_lock()) return state;
  }
  return nullptr;
}

ThreadState* ThreadStates::add_locked() {
  const MutexLock lock(adding_);
  const auto place =
      std::ranges::find(states_, nullptr, [](const auto& slot) { return slot.load(); });
  const std::size_t before = static_cast<std::size_t>(place - states_.begin());
  const std::uint64_t own = kStateOfThread * layout_.segments.size();
  const std::uint64_t memory = own + 2 * kSmallScratch;
  if (before >= most_threads_ || before < 2 || budget_.left() < memory * kThreadsLeft) {
    return nullptr;
  }
  try {
    auto state = std::make_unique<ThreadState>(layout_, nullptr);
    state->own_share = budget_.reserve(own, "a reading thread");
    state->own_scratch = std::make_unique<Scratch>(budget_, kSmallScratch);
    state->scratch = state->own_scratch.get();
    state->mutex.lock();
    place->store(state.get(), std::memory_order_release);
    return state.release();
  } catch (const Error&) {  // the budget was taken meanwhile, or the system has no memory
    return nullptr;
  }
}

CopyingThreads* ThreadStates::copying_threads(std::size_t helpers) {
  if (CopyingThreads* const made = copying_.load(std::memory_order_acquire)) return made;
  const MutexLock lock(adding_);
  if (CopyingThreads* const made = copying_.load(std::memory_order_acquire)) return made;
  const std::uint64_t memory = CopyingThreads::memory(helpers);
  if (budget_.left() < memory * kTeamsLeft) return nullptr;
  auto share = budget_.try_reserve(memory, "copying threads");
  if (!share) return nullptr;
  try {
    auto made = std::make_unique<CopyingThreads>(helpers);
    made->share = std::move(*share);
    copying_.store(made.get(), std::memory_order_release);
    return made.release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

ThreadStates::Lock::Lock(ThreadStates& states)
    : running_(states.running_), states_(states), state_(choose(states)) {
  state_.mutex.assert_held();
  state_.runner = std::this_thread::get_id();
  state_.in_rest = false;
}

ThreadStates::Lock::~Lock() {
  state_.runner = std::thread::id();
  state_.mutex.unlock();
  states_.freed_.notify();
}

ThreadState& ThreadStates::Lock::choose(ThreadStates& states) {
  if (ThreadState* const free = states.lock_free_one()) return *free;
  if (ThreadState* const added = states.add_locked()) return *added;
  return *states.freed_.wait([&states] { return states.lock_free_one(); });
}

}  // namespace evenkeel
