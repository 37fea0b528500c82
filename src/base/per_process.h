// State that must not cross a fork: rings, locks, threads, descriptors in use.
#pragma once

#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>

namespace evenkeel {

// Hands out the State of this process. A child of fork gets a new one; the parent's is left alone
// there, not even destroyed, since another thread may have been in the middle of using it.
template <class State>
class PerProcess {
 public:
  explicit PerProcess(std::function<std::unique_ptr<State>()> make)
      : make_(std::move(make)), current_(new Owned{::getpid(), make_()}) {}
  ~PerProcess() {
    Owned* owned = current_.load();
    if (owned->process == ::getpid()) delete owned;
  }
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  State& get() {
    Owned* owned = current_.load(std::memory_order_acquire);
    if (owned->process == ::getpid()) return *owned->state;
    auto fresh = std::unique_ptr<Owned>(new Owned{::getpid(), make_()});
    if (current_.compare_exchange_strong(owned, fresh.get())) return *fresh.release()->state;
    return *owned->state;  // another thread of this child was first
  }

 private:
  struct Owned {
    pid_t process;
    std::unique_ptr<State> state;
  };
  const std::function<std::unique_ptr<State>()> make_;
  std::atomic<Owned*> current_;
};

}  // namespace evenkeel
