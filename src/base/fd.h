// File descriptors that close themselves, and reads that loop over short reads and EINTR.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/sys.h"

namespace evenkeel {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Fd() { reset(); }
  void reset() {
    if (fd_ >= 0) sys::close(fd_);
    fd_ = -1;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Opens a regular file for reading, with O_CLOEXEC. Throws Error: kSystem, or kInvalid for other
// files.
Fd open_readable(const std::string& path, int extra_flags = 0);

// Reads into `out` from `offset` and returns the number of bytes, which is short only at the end of
// the file. Throws Error (kSystem) with path and offset.
std::size_t read_upto(int fd, std::uint64_t offset, std::span<std::byte> out,
                      const std::string& path);

}  // namespace evenkeel
