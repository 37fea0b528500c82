// The page cache of files that are found over time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace evenkeel {

// One thread at a time.
class FileWatch {
 public:
  // With `keep_open` files stay open: a file that is deleted counts on, and gives its space back
  // when the watch ends. Without, each is opened to be counted, a deleted file does not count any
  // more, and no file system is kept from being unmounted.
  explicit FileWatch(bool keep_open = true) : keep_open_(keep_open) {}

  struct File {
    std::string path;
    std::uint64_t size = 0;                      // bytes, when it was added
    std::optional<std::uint64_t> cached_before;  // bytes; empty: the kernel does not tell
  };

  // Counts what is cached of it above what is cached now. Of that, `just_read` bytes may have been
  // read since the recording began; they count. Returns how many of these are in the cache. A file
  // counts once, under whatever names. Throws Error (kSystem) when it cannot be opened.
  std::uint64_t add(const std::string& path, std::uint64_t just_read = 0);

  // Bytes in the page cache above what was there before, each file for itself. Files that the
  // kernel does not tell about are left out; empty when it tells about none of them. Takes about 2
  // ms for each GiB cached.
  std::optional<std::uint64_t> cached_above_before() const;

  const std::vector<File>& files() const { return files_; }

 private:
  struct Open {
    Fd fd;  // empty without keep_open_
    dev_t device;
    ino_t inode;
  };
  Fd open_again(std::size_t file) const;

  const bool keep_open_;
  std::vector<File> files_;
  std::vector<Open> open_;  // one for each of files_
};

}  // namespace evenkeel
