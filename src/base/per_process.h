// State that must not cross a fork: rings, locks, threads, descriptors in use.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace evenkeel {

// A number that differs between a process and its children of fork. getpid() would work too, but it
// is a system call, and each read needs this several times.
class ForkGeneration {
 public:
  static std::uint64_t now() {
    static const int registered = ::pthread_atfork(nullptr, nullptr, [] { ++forks_; });
    static_cast<void>(registered);
    return forks_.load(std::memory_order_relaxed);
  }

 private:
  static inline std::atomic<std::uint64_t> forks_ = 0;
};

// Owns one State per process. A child of fork gets a new one. It does not even destroy the
// parent's, because another thread of the parent may have been using it.
template <class State>
class PerProcess {
 public:
  explicit PerProcess(std::function<std::unique_ptr<State>()> make)
      : make_(std::move(make)), current_(new Owned{ForkGeneration::now(), make_()}) {}
  ~PerProcess() {
    Owned* owned = current_.load();
    if (owned->generation == ForkGeneration::now()) delete owned;
  }
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  State& get() {
    Owned* owned = current_.load(std::memory_order_acquire);
    const std::uint64_t now = ForkGeneration::now();
    if (owned->generation == now) return *owned->state;
    auto fresh = std::unique_ptr<Owned>(new Owned{now, make_()});
    if (current_.compare_exchange_strong(owned, fresh.get())) return *fresh.release()->state;
    return *owned->state;  // another thread of this child was first
  }
  // The State if it exists already; nullptr in a child that has not called get() yet.
  State* if_made() const {
    Owned* const owned = current_.load(std::memory_order_acquire);
    return owned->generation == ForkGeneration::now() ? owned->state.get() : nullptr;
  }

 private:
  struct Owned {
    std::uint64_t generation;
    std::unique_ptr<State> state;
  };
  const std::function<std::unique_ptr<State>()> make_;
  std::atomic<Owned*> current_;
};

}  // namespace evenkeel
