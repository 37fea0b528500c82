// Counts the page cache of files that are found over time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace evenkeel {

// Not thread-safe.
class FileWatch {
 public:
  // With `keep_open`, files stay open: a deleted file still counts, and its space is freed when the
  // watch ends. Without it, files are opened only to be counted, deleted files do not count, and
  // file systems can be unmounted.
  explicit FileWatch(bool keep_open = true) : keep_open_(keep_open) {}

  struct File {
    std::string path;
    std::uint64_t size = 0;                      // bytes, when it was added
    std::optional<std::uint64_t> cached_before;  // bytes; empty: the kernel does not report it
  };

  // Counts the file's cached bytes beyond those cached now. Up to `just_read` of the bytes cached
  // now may have been read since the recording began, so they count, too; returns how many. A file
  // with several names counts once. Throws Error (kSystem) if it cannot be opened.
  std::uint64_t add(const std::string& path, std::uint64_t just_read = 0);

  // The sum of each file's cached bytes beyond those cached before. Files for which the kernel
  // reports nothing are left out; empty if it reports nothing for all files. Takes about 2 ms for
  // each GiB cached.
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
