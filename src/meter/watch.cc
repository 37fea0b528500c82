#include "meter/watch.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "evenkeel/error.h"
#include "meter/file_cache.h"

namespace evenkeel {

std::uint64_t FileWatch::add(const std::string& path, std::uint64_t just_read) {
  Fd fd = open_readable(path);
  struct stat status;
  if (sys::fstat(fd.get(), &status) != 0) throw Error::system("stat", errno).in(path);
  const auto same = [&](const Open& other) {
    return other.device == status.st_dev && other.inode == status.st_ino;
  };
  if (std::any_of(open_.begin(), open_.end(), same)) return 0;
  File file{path, static_cast<std::uint64_t>(status.st_size), std::nullopt};
  std::uint64_t counted = 0;
  if (const auto cache = file_cache_of(fd.get())) {
    counted = std::min(cache->cached, just_read);
    file.cached_before = cache->cached - counted;
  }
  files_.push_back(std::move(file));
  open_.push_back({keep_open_ ? std::move(fd) : Fd(), status.st_dev, status.st_ino});
  return counted;
}

// Empty if the path is gone or belongs to another file by now.
Fd FileWatch::open_again(std::size_t file) const {
  Fd fd(sys::open(files_[file].path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status;
  const bool same = fd && sys::fstat(fd.get(), &status) == 0 &&
                    status.st_dev == open_[file].device && status.st_ino == open_[file].inode;
  return same ? std::move(fd) : Fd();
}

std::optional<std::uint64_t> FileWatch::cached_above_before() const {
  std::uint64_t bytes = 0;
  bool known = files_.empty();
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (!files_[i].cached_before) continue;
    const Fd again = keep_open_ ? Fd() : open_again(i);
    const auto cache = file_cache_of(keep_open_ ? open_[i].fd.get() : again.get());
    known |= cache || (!keep_open_ && !again);
    if (!cache) continue;
    bytes += cache->cached - std::min(cache->cached, *files_[i].cached_before);
  }
  if (!known) return std::nullopt;
  return bytes;
}

}  // namespace evenkeel
