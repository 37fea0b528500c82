// For tests: a temporary file of a given size, with its data on the disk.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/fd.h"
#include "meter/file_cache.h"

namespace evenkeel {

class TempFile {
 public:
  explicit TempFile(std::uint64_t bytes) {
    path_ = (std::filesystem::temp_directory_path() / "evenkeel-test-XXXXXX").string();
    const Fd fd(::mkstemp(path_.data()));
    if (!fd) throw std::runtime_error("mkstemp " + path_);
    const std::vector<char> block(1 << 20, 'x');
    for (std::uint64_t at = 0; at < bytes; at += block.size()) {
      const std::size_t length = std::min<std::uint64_t>(block.size(), bytes - at);
      if (::write(fd.get(), block.data(), length) != static_cast<ssize_t>(length)) {
        throw std::runtime_error("write " + path_);
      }
    }
    ::fsync(fd.get());
  }
  TempFile(const TempFile&) = delete;
  ~TempFile() { ::unlink(path_.c_str()); }

  const std::string& path() const { return path_; }

  // Reads all of it into the page cache. The kernel may evict a page at any time (DAMON does so
  // with plenty of memory free), so this reads again until all of it is cached.
  void read_through() const {
    const Fd fd = open_readable(path_);
    std::vector<std::byte> block(1 << 20);
    for (int tries = 0; tries < 10; ++tries) {
      std::uint64_t at = 0;
      while (const std::size_t got = read_upto(fd.get(), at, block, path_)) at += got;
      const auto now = file_cache_of(fd.get());
      if (!now || now->cached >= at) return;  // or nobody can tell
    }
  }

 private:
  std::string path_;
};

}  // namespace evenkeel
