#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "base/fd.h"
#include "cli/doctor_checks.h"
#include "evenkeel/array.h"
#include "meter/file_cache.h"

namespace evenkeel::cli {
namespace {

// A file to try things on: the one named, or one made in the folder named.
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
      throw Error::system("doctor", errno, "cannot make a file to try things on")
          .in(path)
          .hint("name a file on that disk: evenkeel doctor FILE");
    }
    made_ = true;
    const std::array<char, 65536> data = {};
    if (::write(fd_.get(), data.data(), data.size()) != ssize_t{65536} || ::fsync(fd_.get()) != 0) {
      const int code = errno;
      ::unlink(path_.c_str());
      throw Error::system("doctor", code, "cannot write a file to try things on").in(path);
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
            "direct and auto read through the page cache instead and drop it behind",
            "a disk with ext4, xfs or btrfs; tmpfs and some network file systems have no O_DIRECT"};
  }
  const sys::DirectAlignment alignment = sys::direct_alignment(fd.get());
  const std::string told = alignment.offset
                               ? fmt::format("works, alignment {} bytes in the file, {} in memory",
                                             alignment.offset, alignment.memory)
                               : std::string("works; the kernel does not tell its alignment");
  return {"O_DIRECT", Health::kOk, told, "direct reads past the page cache", ""};
}

Check what_is_cached(const Probe& probe) {
  const auto cache = file_cache_of(probe.fd());
  if (!cache) {
    return {"page cache", Health::kMissing, "the kernel tells of this file only to its owner",
            "auto does not look into the cache; measurements leave the page cache out",
            "own the file, or have the right to write it"};
  }
  const bool fast = cache->source == "cachestat";
  return {"page cache", fast ? Health::kOk : Health::kLimited,
          cache->source + " tells what is cached",
          fast ? "auto takes what is cached from the cache"
               : "auto does not look into the cache: mincore is too slow to ask",
          fast ? "" : "a kernel from 6.5 on"};
}

Check uncached_reads(const Probe& probe) {
  constexpr int kDontCache = 0x80;  // RWF_DONTCACHE, since Linux 6.14
  std::byte byte;
  if (sys::pread_flags(probe.fd(), &byte, 1, 0, kDontCache) >= 0) {
    return {"RWF_DONTCACHE", Health::kOk, "works", "read leaves nothing in the page cache", ""};
  }
  return {"RWF_DONTCACHE", Health::kLimited, error_text(errno),
          "read drops what it read from the page cache itself (POSIX_FADV_DONTNEED)",
          "Linux 6.14 or newer with ext4, xfs or btrfs; no need if direct works"};
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

EngineReport direct_report(const std::string& path) {
  ArrayOptions options;
  options.budget = 64_MiB;
  options.engine = EngineKind::kDirect;
  try {
    return Array::open({path}, options).engine();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kFormat) throw;
  }
  options.dtype = DType{DTypeKind::kUint, 1};  // no known format: its bytes will do
  return Array::open({path}, options).engine();
}

Check engine(const Probe& probe) {
  try {
    const EngineReport report = direct_report(probe.path());
    const bool direct = report.chosen == EngineKind::kDirect;
    return {"engine", direct ? Health::kOk : Health::kLimited, report.how,
            direct ? "what direct, and auto for data larger than the budget, do here" : report.why,
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
  return {direct_io(probe), what_is_cached(probe), uncached_reads(probe), readahead(probe),
          engine(probe)};
}

std::string health_name(Health health) {
  return health == Health::kOk ? "ok" : health == Health::kLimited ? "limited" : "missing";
}

}  // namespace evenkeel::cli
