// The page cache of files that are found over time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace evenkeel {

// Keeps its files open: a file that is deleted gives its space back when the watch ends. One thread
// at a time.
class FileWatch {
 public:
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
    Fd fd;
    dev_t device;
    ino_t inode;
  };
  std::vector<File> files_;
  std::vector<Open> open_;  // one for each of files_
};

}  // namespace evenkeel
