#include "base/thread.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace evenkeel {

void ask_for_short_slices() {
  if (::sched_getscheduler(0) != SCHED_OTHER) return;  // the user chose another policy
  struct Attributes {                                  // sched_attr, which libc does not declare
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime, deadline, period;
  } attributes{};
  attributes.size = sizeof attributes;
  attributes.policy = SCHED_OTHER;
  attributes.nice = ::getpriority(PRIO_PROCESS, 0);
  attributes.runtime = 100'000;  // nanoseconds, the shortest slice
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

std::chrono::duration<double> thread_cpu_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace evenkeel
