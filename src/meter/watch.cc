#include "meter/watch.h"

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
  open_.push_back({std::move(fd), status.st_dev, status.st_ino});
  return counted;
}

std::optional<std::uint64_t> FileWatch::cached_above_before() const {
  std::uint64_t bytes = 0;
  bool told = files_.empty();
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (!files_[i].cached_before) continue;
    const auto cache = file_cache_of(open_[i].fd.get());
    if (!cache) continue;
    told = true;
    bytes += cache->cached - std::min(cache->cached, *files_[i].cached_before);
  }
  if (!told) return std::nullopt;
  return bytes;
}

}  // namespace evenkeel
