#include <fmt/core.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/cgroup.h"
#include "base/fd.h"
#include "base/text_file.h"
#include "cli/doctor_checks.h"
#include "cli/preload_library.h"
#include "evenkeel/budget.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

constexpr int kCapIpcLock = 14, kCapSysNice = 23;

bool has_capability(int bit) {
  const std::string status = read_text_file("/proc/self/status").value_or("");
  const std::size_t at = status.find("\nCapEff:\t");
  if (at == std::string::npos) return false;
  return (std::strtoull(status.c_str() + at + 9, nullptr, 16) >> bit & 1) != 0;
}

Check kernel() {
  utsname name;
  ::uname(&name);
  int major = 0, minor = 0;
  std::sscanf(name.release, "%d.%d", &major, &minor);
  const bool recent = major > 6 || (major == 6 && minor >= 5);
  return {"kernel", recent ? Health::kOk : Health::kLimited,
          fmt::format("{} {}", name.sysname, name.release),
          recent ? "all that Evenkeel knows to use is there, unless a line below says otherwise"
                 : "works, with less: asking what is cached (cachestat) came with Linux 6.5",
          recent ? "" : "a kernel from 6.5 on"};
}

// What the kernel says when a small ring is asked for.
int try_io_uring() {
  io_uring_params params = {};
  const long fd = ::syscall(__NR_io_uring_setup, 2, &params);
  if (fd < 0) return errno;
  ::close(static_cast<int>(fd));
  return 0;
}

Check io_uring() {
  const auto disabled = read_text_file("/proc/sys/kernel/io_uring_disabled");
  const std::string setting = disabled ? fmt::format(", kernel.io_uring_disabled = {}",
                                                     leading_number(*disabled).value_or(0))
                                       : "";
  const int error = try_io_uring();
  if (error == 0) {
    return {"io_uring", Health::kOk, "works" + setting,
            "direct keeps many reads in flight from one thread", ""};
  }
  return {"io_uring", Health::kMissing, error_text(error) + setting,
          "direct uses a pool of threads instead: the same bytes, somewhat slower",
          "sysctl kernel.io_uring_disabled=0; in a container, a seccomp profile that allows "
          "io_uring_setup, io_uring_enter and io_uring_register"};
}

Check locked_memory() {
  rlimit limit = {};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool exempt = has_capability(kCapIpcLock);
  const bool unlimited = limit.rlim_cur == RLIM_INFINITY;
  const bool enough = exempt || unlimited || limit.rlim_cur >= 8_MiB;
  return {"locked memory", enough ? Health::kOk : Health::kLimited,
          fmt::format("RLIMIT_MEMLOCK {}{}", unlimited ? "unlimited" : format_size(limit.rlim_cur),
                      exempt ? ", not binding (CAP_IPC_LOCK)" : ""),
          enough ? "direct registers its buffers with the kernel"
                 : "direct does without registered buffers where they do not fit: a little slower",
          enough ? "" : "ulimit -l 65536, or memlock in /etc/security/limits.conf"};
}

Check open_files() {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const bool enough = limit.rlim_cur >= 512;
  return {"open files", enough ? Health::kOk : Health::kLimited,
          fmt::format("RLIMIT_NOFILE {}", with_commas(limit.rlim_cur)),
          "arrays of many files keep only some of them open at a time",
          enough ? "" : "ulimit -n 1024"};
}

Check memory() {
  const AvailableMemory available = available_memory();
  const bool enough = available.bytes >= 256_MiB;
  return {"memory", enough ? Health::kOk : Health::kLimited,
          fmt::format("{} available ({})", format_size(available.bytes), available.source),
          "default budget: " + Budget().describe(),
          enough ? "" : "name a budget that leaves room for the rest of the program"};
}

Check cgroups() {
  std::string found;
  for (const CgroupMemory& level : memory_cgroups()) {
    found += fmt::format("{}v{} {}: {} of {} used, {} left", found.empty() ? "" : "; ",
                         level.version, level.path, format_size(level.usage),
                         format_size(level.limit), format_size(level.headroom()));
  }
  if (found.empty()) {
    return {"memory cgroup", Health::kOk, "no limit around this process",
            "only the machine's memory counts", ""};
  }
  return {"memory cgroup", Health::kLimited, found,
          "the default budget keeps to the tightest; page cache counts against it too",
          "raise the limit, or leave it: Evenkeel stays within its budget"};
}

Check other_processes() {
  const Fd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  iovec range = {page, 4096};
  constexpr int kCold = 20;  // MADV_COLD
  const bool works = self && ::syscall(SYS_process_madvise, self.get(), &range, 1, kCold, 0) >= 0;
  ::munmap(page, 4096);
  const bool allowed = has_capability(kCapSysNice);
  return {"process_madvise",
          !works    ? Health::kMissing
          : allowed ? Health::kOk
                    : Health::kLimited,
          fmt::format("{}, CAP_SYS_NICE: {}", works ? "works" : "does not work",
                      allowed ? "yes" : "no"),
          works && allowed ? "evenkeel guard --pid can act on running processes"
                           : "evenkeel guard --pid cannot be had; evenkeel guard -- COMMAND can",
          !works    ? "a kernel from 5.10 on, and a seccomp profile that allows it"
          : allowed ? ""
                    : "run as root, or setcap cap_sys_nice+ep on the tool; not needed for reading"};
}

Check guard_library() {
  try {
    return {"guard", Health::kOk, find_preload_library(),
            "evenkeel guard -- COMMAND keeps the mapped files of any program under a line", ""};
  } catch (const Error& error) {
    return {"guard", Health::kMissing, error.what(),
            "evenkeel guard -- COMMAND runs commands unguarded",
            "install evenkeel whole, with libevenkeel_guard.so"};
  }
}

}  // namespace

std::vector<Check> check_system() {
  return {kernel(), io_uring(), locked_memory(),   open_files(),
          memory(), cgroups(),  other_processes(), guard_library()};
}

}  // namespace evenkeel::cli
