// A read-only mapping of part of a file.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/sys.h"
#include "engine/files.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {

// Move-only. The mapping is shared and read-only, so advice can never lose changes.
class Mapping {
 public:
  Mapping() = default;
  // `offset` must be a multiple of the page size, `length` at least 1. Throws Error (kSystem).
  Mapping(int fd, std::uint64_t offset, std::uint64_t length, const std::string& path)
      : length_(length) {
    void* address = sys::mmap(nullptr, length, PROT_READ, MAP_SHARED, fd, offset);
    if (address == MAP_FAILED) {
      throw Error::system("map", errno, format_size(length) + " of the file")
          .in(path)
          .at(offset)
          .hint(
              "the process may be at its address-space limit (ulimit -v) or have too many mappings "
              "(vm.max_map_count); engine \"direct\" maps nothing");
    }
    data_ = static_cast<std::byte*>(address);
  }
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), length_(std::exchange(other.length_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this == &other) return *this;
    reset();
    data_ = std::exchange(other.data_, nullptr);
    length_ = std::exchange(other.length_, 0);
    return *this;
  }
  ~Mapping() { reset(); }
  void reset() {
    if (data_) sys::munmap(data_, length_);
    data_ = nullptr;
    length_ = 0;
  }

  // Replaces the mapping in place, which frees its page tables. Other threads may read it meanwhile
  // and find the same bytes. Returns false if the kernel refused, which may have left no mapping
  // here (see `lost`).
  bool renew(int fd) const {
    return sys::mmap(data_, length_, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
  }
  // Whether nothing is mapped at its address any more.
  bool lost() const {
    unsigned char page;
    return sys::mincore(data_, 1, &page) != 0 && errno == ENOMEM;
  }
  // For a mapping that is lost. It must not be unmapped, because another mapping may be at its
  // address by now.
  void forget() {
    data_ = nullptr;
    length_ = 0;
  }

  std::byte* data() const { return data_; }
  std::uint64_t length() const { return length_; }
  explicit operator bool() const { return data_ != nullptr; }

  // Advises [begin, begin+length), clipped to the mapping. `begin` is a multiple of the page size.
  int advise(std::uint64_t begin, std::uint64_t length, int advice) const {
    if (begin >= length_) return 0;
    return sys::madvise(data_ + begin, std::min(length, length_ - begin), advice);
  }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t length_ = 0;
};

// Reads a mapped range into memory. Touching the pages instead would raise SIGBUS if the file has
// become shorter; this throws Error. `file_offset` is where the range lies in the file. Does
// nothing on kernels before 5.14.
inline void populate(const Mapping& mapping, std::uint64_t begin, std::uint64_t length,
                     const Segment& segment, std::uint64_t file_offset) {
#ifdef MADV_POPULATE_READ
  constexpr int kPopulateRead = MADV_POPULATE_READ;
#else
  constexpr int kPopulateRead = 22;  // Linux 5.14; older headers lack the name
#endif
  if (mapping.advise(begin, length, kPopulateRead) == 0) return;
  if (errno == EFAULT) throw_truncated(segment, file_offset);
  if (errno == EIO || errno == EHWPOISON) {
    throw Error::system("read", errno).in(segment.path).at(file_offset);
  }
}

}  // namespace evenkeel
