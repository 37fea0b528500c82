#include "cli/doctor_checks.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "base/cgroup.h"
#include "base/fd.h"
#include "base/text_file.h"
#include "cli/preload_library.h"
#include "evenkeel/array.h"
#include "evenkeel/budget.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "meter/file_cache.h"

namespace evenkeel::cli {
namespace {

// The file that the checks use: `path` itself, or a temporary file in it if it is a folder.
class Probe {
 public:
  explicit Probe(const std::string& path) : path_(path) {
    struct stat status;
    if (::stat(path.c_str(), &status) != 0) throw Error::system("doctor", errno).in(path);
    if (!S_ISDIR(status.st_mode)) {
      fd_ = open_readable(path);
      return;
    }
    path_ = path + "/.evenkeel-doctor-XXXXXX";
    fd_ = Fd(::mkostemp(path_.data(), O_CLOEXEC));
    if (!fd_) {
      throw Error::system("doctor", errno, "cannot create a test file")
          .in(path)
          .hint("name a file on that disk: evenkeel doctor FILE");
    }
    made_ = true;
    const std::array<char, 65536> data = {};
    if (::write(fd_.get(), data.data(), data.size()) != ssize_t{65536} || ::fsync(fd_.get()) != 0) {
      const int code = errno;
      ::unlink(path_.c_str());
      throw Error::system("doctor", code, "cannot write a test file").in(path);
    }
  }
  ~Probe() {
    if (made_) ::unlink(path_.c_str());
  }
  Probe(const Probe&) = delete;
  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }

 private:
  std::string path_;
  Fd fd_;
  bool made_ = false;
};

Check direct_io(const Probe& probe) {
  const Fd fd(::open(probe.path().c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  const int error = fd ? 0 : errno;
  alignas(4096) static std::byte page[4096];
  const bool works = fd && ::pread(fd.get(), page, sizeof page, 0) >= 0;
  if (!works) {
    return {"O_DIRECT", Health::kMissing, error_text(error ? error : errno),
            "direct and auto read through the page cache instead and drop the pages afterwards",
            "a disk with ext4, xfs or btrfs; tmpfs and some network file systems have no O_DIRECT"};
  }
  const sys::DirectAlignment alignment = sys::direct_alignment(fd.get());
  const std::string told = alignment.offset
                               ? fmt::format("works, alignment {} bytes in the file, {} in memory",
                                             alignment.offset, alignment.memory)
                               : std::string("works; the kernel does not report the alignment");
  return {"O_DIRECT", Health::kOk, told, "direct reads past the page cache", ""};
}

Check what_is_cached(const Probe& probe) {
  const auto cache = file_cache_of(probe.fd());
  if (!cache) {
    return {"page cache", Health::kMissing, "the kernel reports it only to the owner of this file",
            "auto does not look into the cache; measurements do not include the page cache",
            "own the file, or have write permission"};
  }
  const bool fast = cache->source == "cachestat";
  return {"page cache", fast ? Health::kOk : Health::kLimited,
          cache->source + " reports what is cached",
          fast ? "auto reads cached data from the page cache"
               : "auto does not look into the cache: mincore is too slow",
          fast ? "" : "Linux 6.5 or later"};
}

Check uncached_reads(const Probe& probe) {
  constexpr int kDontCache = 0x80;  // RWF_DONTCACHE, since Linux 6.14
  std::byte byte;
  if (sys::pread_flags(probe.fd(), &byte, 1, 0, kDontCache) >= 0) {
    return {"RWF_DONTCACHE", Health::kOk, "works", "read leaves nothing in the page cache", ""};
  }
  return {"RWF_DONTCACHE", Health::kLimited, error_text(errno),
          "read drops what it read from the page cache itself (POSIX_FADV_DONTNEED)",
          "Linux 6.14 or later with ext4, xfs or btrfs; no need if direct works"};
}

Check readahead(const Probe& probe) {
  const auto bytes = readahead_bytes(probe.path());
  if (!bytes) {
    return {"readahead", Health::kOk, "unknown", "direct does not depend on it", ""};
  }
  const bool large = *bytes > 512_KiB;
  struct stat status = {};
  ::fstat(probe.fd(), &status);
  return {"readahead", large ? Health::kLimited : Health::kOk, format_size(*bytes),
          large ? fmt::format("random reads through a mapping fetch up to {} around each fault; "
                              "direct does not depend on it",
                              format_size(*bytes))
                : std::string("usual; direct does not depend on it"),
          large ? fmt::format("echo 128 | sudo tee /sys/class/bdi/{}:{}/read_ahead_kb",
                              major(status.st_dev), minor(status.st_dev))
                : ""};
}

// Says when to choose page_cache "fill".
Check free_memory(const Probe& probe) {
  const AvailableMemory memory = available_memory();
  struct stat status = {};
  ::fstat(probe.fd(), &status);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  const bool fits = size <= memory.bytes - memory.bytes / 8;
  return {
      "free memory", Health::kOk,
      fmt::format("{} ({}), the file is {}", format_size(memory.bytes), memory.source,
                  format_size(size)),
      fits ? "the file fits: if nobody else needs this memory and the data is read more than "
             "once, page_cache \"fill\" keeps it there; the default, \"spare\", stays within the "
             "budget"
           : "the file does not fit: leave page_cache at \"spare\", with a budget as large as "
             "you can give",
      ""};
}

EngineReport direct_report(const std::string& path) {
  ArrayOptions options;
  options.budget = 64_MiB;
  options.engine = EngineKind::kDirect;
  try {
    return Array::open({path}, options).engine();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kFormat) throw;
  }
  options.dtype = DType{DTypeKind::kUint, 1};  // unknown format: read it as bytes
  return Array::open({path}, options).engine();
}

Check engine(const Probe& probe) {
  try {
    const EngineReport report = direct_report(probe.path());
    const bool direct = report.chosen == EngineKind::kDirect;
    return {"engine", direct ? Health::kOk : Health::kLimited, report.how,
            direct ? "how direct reads here, and auto if the data is larger than the budget"
                   : report.why,
            ""};
  } catch (const Error& error) {
    const std::string what = error.what();
    return {"engine", Health::kMissing, what.substr(0, what.find('\n')), "this file cannot be read",
            error.hint_text()};
  }
}

}  // namespace

std::vector<Check> check_disk(const std::string& path) {
  const Probe probe(path);
  return {direct_io(probe), what_is_cached(probe), uncached_reads(probe),
          readahead(probe), free_memory(probe),    engine(probe)};
}

std::string health_name(Health health) {
  return health == Health::kOk ? "ok" : health == Health::kLimited ? "limited" : "missing";
}

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
          recent ? "has all that Evenkeel can use, unless a line below says otherwise"
                 : "works, but without cachestat, which reports what is cached (Linux 6.5)",
          recent ? "" : "Linux 6.5 or later"};
}

// Creates a small ring; returns 0 or an errno.
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
                 : "direct does without registered buffers if they do not fit: a little slower",
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
          enough ? "" : "set a budget that leaves room for the rest of the program"};
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
          "the default budget follows the lowest limit; page cache counts against it too",
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
                           : "evenkeel guard --pid is not available; evenkeel guard -- COMMAND is",
          !works    ? "Linux 5.10 or later, and a seccomp profile that allows it"
          : allowed ? ""
                    : "run as root, or setcap cap_sys_nice+ep on the tool; not needed for reading"};
}

Check guard_library() {
  try {
    return {"guard", Health::kOk, find_preload_library(),
            "evenkeel guard -- COMMAND keeps the mapped files of any program within a budget", ""};
  } catch (const Error& error) {
    return {"guard", Health::kMissing, error.what(),
            "evenkeel guard -- COMMAND runs commands unguarded",
            "reinstall Evenkeel: libevenkeel_guard.so is missing"};
  }
}

}  // namespace

std::vector<Check> check_system() {
  return {kernel(), io_uring(), locked_memory(),   open_files(),
          memory(), cgroups(),  other_processes(), guard_library()};
}

}  // namespace evenkeel::cli
