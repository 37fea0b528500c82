// For tests: makes chosen system calls fail, and counts all of them.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fault_hook.h"

namespace evenkeel {

struct NamedFault {
  std::string_view name;
  sys::Fault fault;
  // The library must handle it: no error may reach the user.
  bool harmless = false;
};

inline constexpr std::size_t kCalls = static_cast<std::size_t>(sys::Call::kCount);
inline constexpr std::string_view kCallNames[kCalls] = {
    "open",        "close",         "fstat",      "lstat",        "read folder", "pread",
    "preadv2",     "read text",     "mmap",       "munmap",       "madvise",     "mincore",
    "fadvise",     "cachestat",     "statx",      "copy mapped",  "sync range",  "create",
    "pwrite",      "fallocate",     "ftruncate",  "fsync",        "rename",      "unlink",
    "ring set-up", "ring register", "ring enter", "thread start", "clock"};

constexpr NamedFault error_fault(std::string_view name, int code, bool harmless = false) {
  return {name, {.error = code}, harmless};
}

// The faults that each call may have.
inline std::vector<NamedFault> faults_for(sys::Call call) {
  using sys::Call;
  const auto of = [](auto... faults) { return std::vector<NamedFault>{faults...}; };
  const NamedFault eio = error_fault("EIO", EIO), eintr = error_fault("EINTR", EINTR, true),
                   eagain = error_fault("EAGAIN", EAGAIN, true),
                   enomem = error_fault("ENOMEM", ENOMEM), emfile = error_fault("EMFILE", EMFILE),
                   one_byte{"1 byte", {.at_most = 1}, true},
                   some_bytes{"5000 bytes", {.at_most = 5000}, true},
                   nothing{"0 bytes", {.at_most = 0}};
  const auto ignored = [](std::string_view name, int code) {
    return error_fault(name, code, true);
  };
  constexpr std::int64_t kHour = 3'600'000'000'000;
  switch (call) {
    case Call::kOpen:
      return of(eio, eintr, enomem, emfile, error_fault("ENFILE", ENFILE),
                error_fault("EACCES", EACCES));
    case Call::kClose:
      return of(ignored("EIO", EIO), ignored("EINTR", EINTR));
    case Call::kFstat:
      return of(eio, error_fault("ESTALE", ESTALE));
    case Call::kLstat:
      return of(eio, enomem, error_fault("ESTALE", ESTALE));
    case Call::kReadFolder:
      return of(eio, enomem, emfile);
    case Call::kPread:
      return of(eio, eintr, eagain, enomem, one_byte, some_bytes, nothing);
    case Call::kPreadFlags:
      return of(eio, eintr, eagain, enomem, one_byte, some_bytes, nothing,
                ignored("EOPNOTSUPP", EOPNOTSUPP));
    case Call::kReadText:
      return of(ignored("EIO", EIO), eintr, one_byte, NamedFault{"0 bytes", {.at_most = 0}, true});
    case Call::kMmap:
      return of(enomem, error_fault("EAGAIN", EAGAIN), error_fault("ENODEV", ENODEV));
    case Call::kMunmap:
      return of(ignored("ENOMEM", ENOMEM));
    case Call::kMadvise:
      return of(ignored("EINVAL", EINVAL), ignored("ENOMEM", ENOMEM), eio,
                error_fault("EFAULT", EFAULT));
    case Call::kMincore:
      return of(ignored("EAGAIN", EAGAIN), ignored("ENOMEM", ENOMEM));
    case Call::kFadvise:
    case Call::kSyncRange:
      return of(ignored("EIO", EIO), ignored("EINVAL", EINVAL));
    case Call::kCreate:
      return of(eio, eintr, emfile, error_fault("EACCES", EACCES), error_fault("ENOSPC", ENOSPC));
    case Call::kPwrite:
      return of(eio, eintr, error_fault("ENOSPC", ENOSPC), error_fault("EDQUOT", EDQUOT), one_byte,
                some_bytes);
    case Call::kFallocate:
      return of(ignored("EOPNOTSUPP", EOPNOTSUPP), eintr, error_fault("ENOSPC", ENOSPC), eio);
    case Call::kFtruncate:
    case Call::kRename:
      return of(eio, error_fault("ENOSPC", ENOSPC));
    case Call::kFsync:
      return of(eio, eintr, error_fault("ENOSPC", ENOSPC));
    case Call::kUnlink:
      return of(ignored("EIO", EIO));
    case Call::kCachestat:
      return of(ignored("ENOSYS", ENOSYS), ignored("EPERM", EPERM), ignored("EIO", EIO));
    case Call::kDirectAlignment:
      return of(ignored("ENOSYS", ENOSYS), ignored("EIO", EIO));
    case Call::kCopyMapped:
      return of(ignored("EPERM", EPERM), ignored("EFAULT", EFAULT), ignored("ENOMEM", ENOMEM),
                one_byte, NamedFault{"0 bytes", {.at_most = 0}, true});
    case Call::kRingSetup:
      return of(ignored("ENOSYS", ENOSYS), ignored("EPERM", EPERM), ignored("ENOMEM", ENOMEM),
                ignored("EMFILE", EMFILE), ignored("EINVAL", EINVAL));
    case Call::kRingRegister:
      return of(ignored("ENOMEM", ENOMEM), ignored("EINVAL", EINVAL), ignored("EPERM", EPERM));
    case Call::kRingEnter:
      return of(eintr, eagain, ignored("EBUSY", EBUSY), enomem, eio, error_fault("EPERM", EPERM));
    case Call::kThreadStart:
      return of(ignored("EAGAIN", EAGAIN), ignored("ENOMEM", ENOMEM));
    case Call::kClock:
      return of(NamedFault{"an hour ahead", {.clock_jump_ns = kHour}, true},
                NamedFault{"an hour back", {.clock_jump_ns = -kHour}, true});
    case Call::kCount:
      break;
  }
  return {};
}

// Counts every call and makes the chosen one fail, as long as the object exists. Other threads that
// use the library must end before it does.
class FaultScript final : public sys::FaultHook {
 public:
  FaultScript() { sys::fault_hook = this; }
  ~FaultScript() { sys::fault_hook = nullptr; }
  FaultScript(const FaultScript&) = delete;
  FaultScript& operator=(const FaultScript&) = delete;

  // Call number `ordinal` of this kind, counted from now on, fails; with `from_then_on`, so do all
  // later ones.
  void spoil(sys::Call call, std::uint64_t ordinal, const sys::Fault& fault,
             bool from_then_on = false) {
    for (auto& count : counts_) count = 0;
    reached_ = false;
    fault_ = fault;
    ordinal_ = ordinal;
    from_then_on_ = from_then_on;
    call_ = call;
    spared_ = false;
  }
  // From now on, no call fails, and none is counted.
  void spare() { spared_ = true; }
  // From now on, io_uring is not allowed, also after spare().
  void forbid_rings() { rings_ = false; }

  std::uint64_t count(sys::Call call) const { return counts_[static_cast<std::size_t>(call)]; }
  bool reached() const { return reached_; }

  sys::Fault on(sys::Call call) override {
    if (call == sys::Call::kRingSetup && !rings_) return {.error = EPERM};
    if (spared_) return {};
    const std::uint64_t number = counts_[static_cast<std::size_t>(call)]++;
    if (call != call_ || number < ordinal_ || (number > ordinal_ && !from_then_on_)) return {};
    reached_ = true;
    return fault_;
  }

 private:
  std::array<std::atomic<std::uint64_t>, kCalls> counts_{};
  std::atomic<sys::Call> call_ = sys::Call::kCount;
  std::uint64_t ordinal_ = 0;
  bool from_then_on_ = false;
  sys::Fault fault_;
  std::atomic<bool> rings_ = true, reached_ = false, spared_ = true;
};

}  // namespace evenkeel
