// For tests: makes calls to the kernel fail, fall short, or answer what they would not.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace evenkeel::sys {

enum class Call {
  kOpen,
  kClose,  // fails after it has closed, as Linux does
  kFstat,
  kLstat,
  kReadFolder,  // opendir and readdir
  kPread,
  kPreadFlags,
  kReadText,  // of /proc and /sys
  kMmap,
  kMunmap,  // fails after it has unmapped
  kMadvise,
  kFadvise,
  kCachestat,
  kDirectAlignment,  // statx
  kCopyMapped,       // process_vm_readv
  kSyncRange,
  kRingSetup,
  kRingRegister,
  kRingEnter,  // hands reads to the ring, and waits
  kThreadStart,
  kClock,
  kCount,
};

struct Fault {
  int error = 0;                   // the call fails with this errno; 0: it is made
  std::size_t at_most = SIZE_MAX;  // reads: so many bytes and no more
  std::int64_t clock_jump_ns = 0;  // clocks: added to what they say
};

class FaultHook {
 public:
  // Asked before each call, by any thread.
  virtual Fault on(Call call) = 0;

 protected:
  ~FaultHook() = default;
};

// Empty but in tests. It stays in what users get, so that what is tested is what they get: a load
// and a branch beside each system call.
extern std::atomic<FaultHook*> fault_hook;

inline Fault fault_of(Call call) {
  FaultHook* hook = fault_hook.load(std::memory_order_relaxed);
  if (!hook) [[likely]]
    return {};
  return hook->on(call);
}

// For calls that others make on our behalf: the errno with which this one is to fail, or 0.
inline int injected_error(Call call) { return fault_of(call).error; }

}  // namespace evenkeel::sys
