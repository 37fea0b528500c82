// A file in memory, for readers that open files by path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace evenkeel::fuzz {

class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0) std::abort();
    path_ = "/proc/self/fd/" + std::to_string(fd_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }

  const std::string& path() const { return path_; }

  // Replaces the content.
  const std::string& hold(std::string_view bytes) const {
    resize(0);
    const auto wrote = ::pwrite(fd_, bytes.data(), bytes.size(), 0);
    if (wrote != static_cast<ssize_t>(bytes.size())) std::abort();
    return path_;
  }
  // A hole at the end uses no memory, so files may be as long as their headers claim.
  void resize(std::uint64_t bytes) const {
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) std::abort();
  }

 private:
  const int fd_;
  std::string path_;
};

inline constexpr std::uint64_t kLongestFile = std::uint64_t{1} << 62;

}  // namespace evenkeel::fuzz
