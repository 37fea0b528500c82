#include "meter/file_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/checked.h"
#include "base/fd.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

// To users other than the owner, mincore reports every page as resident.
bool mincore_is_right(int fd, const struct stat& status) {
  if (status.st_uid == ::geteuid() || ::geteuid() == 0) return true;
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  return ::faccessat(AT_FDCWD, self.c_str(), W_OK, AT_EACCESS) == 0;
}

}  // namespace

std::optional<FileCache> file_cache_by_mincore(int fd) {
  struct stat status;
  if (sys::fstat(fd, &status) != 0 || !mincore_is_right(fd, status)) return std::nullopt;
  constexpr std::uint64_t kWindow = std::uint64_t{1} << 30;
  const std::uint64_t page = sys::page_size();
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::vector<unsigned char> resident(std::min(kWindow, round_up(size, page)) / page);
  std::uint64_t pages = 0;
  for (std::uint64_t at = 0; at < size; at += kWindow) {
    const std::uint64_t length = std::min(kWindow, size - at);
    void* map = sys::mmap(nullptr, length, PROT_READ, MAP_SHARED, fd, at);
    if (map == MAP_FAILED) return std::nullopt;
    const bool known = ::mincore(map, length, resident.data()) == 0;
    sys::munmap(map, length);
    if (!known) return std::nullopt;
    pages += static_cast<std::uint64_t>(std::count_if(
        resident.begin(), resident.begin() + static_cast<long>(divide_up(length, page)),
        [](unsigned char flags) { return (flags & 1) != 0; }));
  }
  return FileCache{pages * page, 0, 0, "mincore"};
}

std::optional<FileCache> file_cache_of(int fd) {
  sys::CacheStat pages;
  if (sys::cachestat(fd, 0, 0, &pages) != 0) {
    if (errno == EPERM) return std::nullopt;
    return file_cache_by_mincore(fd);
  }
  const std::uint64_t page = sys::page_size();
  return FileCache{pages.cached * page, pages.dirty * page, pages.evicted * page, "cachestat"};
}

std::optional<FileCache> file_cache(const std::string& path) {
  return file_cache_of(open_readable(path).get());
}

std::optional<std::uint64_t> drop_file_cache(const std::string& path) {
  const Fd fd = open_readable(path);
  ::fsync(fd.get());  // dirty pages cannot be dropped; if it fails, they count as left
  if (sys::fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED) != 0) {
    throw Error::system("drop from the page cache", errno).in(path);
  }
  const auto left = file_cache_of(fd.get());
  if (!left) return std::nullopt;
  return left->cached;
}

}  // namespace evenkeel
