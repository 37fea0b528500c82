// Fault injection for tests: makes system calls fail, read short, or return other values.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace evenkeel::sys {

enum class Call {
  kOpen,
  kClose,  // fails after closing, as on Linux
  kFstat,
  kLstat,
  kReadFolder,  // opendir and readdir
  kPread,
  kPreadFlags,
  kReadText,  // of /proc and /sys
  kMmap,
  kMunmap,  // fails after unmapping
  kMadvise,
  kMincore,
  kFadvise,
  kCachestat,
  kDirectAlignment,  // statx
  kCopyMapped,       // process_vm_readv
  kSyncRange,
  kCreate,
  kPwrite,
  kFallocate,
  kFtruncate,
  kFsync,
  kRename,
  kUnlink,
  kRingSetup,
  kRingRegister,
  kRingEnter,  // submits reads to the ring, and waits
  kThreadStart,
  kClock,
  kCount,
};

struct Fault {
  int error = 0;                   // the call fails with this errno; 0: it is executed
  std::size_t at_most = SIZE_MAX;  // reads return at most this many bytes
  std::int64_t clock_jump_ns = 0;  // added to what a clock returns
};

class FaultHook {
 public:
  // Called before each system call, from any thread.
  virtual Fault on(Call call) = 0;

 protected:
  ~FaultHook() = default;
};

// Null except in tests. Release builds keep the hook, so that users run exactly the code that is
// tested. It costs a load and a branch per system call.
extern std::atomic<FaultHook*> fault_hook;

inline Fault fault_of(Call call) {
  FaultHook* hook = fault_hook.load(std::memory_order_relaxed);
  if (!hook) [[likely]]
    return {};
  return hook->on(call);
}

// For system calls that other libraries make for us: the errno this one should fail with, or 0.
inline int injected_error(Call call) { return fault_of(call).error; }

}  // namespace evenkeel::sys
