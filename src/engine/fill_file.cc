#include "engine/fill_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/checked.h"
#include "base/retry_policy.h"
#include "evenkeel/error.h"
#include "format/layout.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kMostPagesAsked = 512;  // in one call of mincore

// For files that the user neither owns nor may write to, mincore reports every page as present.
// cachestat fails by the same rule. On kernels without cachestat, check the owner.
bool mincore_is_right(int fd) {
  sys::CacheStat stat{};
  if (sys::cachestat(fd, 0, 1, &stat) == 0) return true;
  if (errno == EPERM) return false;
  struct stat status;
  return sys::fstat(fd, &status) == 0 && (::geteuid() == 0 || status.st_uid == ::geteuid());
}

void advise(const Mapping& mapping) {
  mapping.advise(0, mapping.length(), MADV_RANDOM);
  mapping.advise(0, mapping.length(), MADV_DONTDUMP);
}

}  // namespace

MappedFile::~MappedFile() {
  for (Mapping& one : made_) {
    if (!ready() || &one != &made_.back()) one.forget();
  }
}

void MappedFile::map(int fd, const Segment& segment, std::uint64_t region_bytes) {
  Mapping mapping(fd, 0, segment.identity.size, segment.path);
  if (!regions) {
    const std::size_t count = divide_up(mapping.length(), region_bytes);
    regions = std::make_unique<RegionState[]>(count);
    region_count = count;
    may_ask_ = mincore_is_right(fd);
  }
  advise(mapping);
  current_.store(&made_.emplace_back(std::move(mapping)), std::memory_order_release);
  ready_.store(true, std::memory_order_release);
}

void MappedFile::renew(int fd, const Segment& segment) {
  RetryPolicy retry;
  while (!mapping().renew(fd)) {
    const int code = errno;
    if (!mapping().lost()) return;
    if (retry.try_again(EAGAIN)) continue;
    ready_ = false;
    throw Error::system("map", code, "the mapping of the file was lost")
        .in(segment.path)
        .hint("the system is out of memory; read again, or use page_cache \"spare\"");
  }
  advise(mapping());
  for (std::size_t i = 0; i < region_count; ++i) regions[i].forget_tables();
}

bool MappedFile::in_memory(std::uint64_t offset, std::uint64_t length) const {
  if (!may_ask_) return false;
  const std::uint64_t page = sys::page_size();
  std::array<unsigned char, kMostPagesAsked> pages;
  const std::uint64_t end = std::min(round_up(offset + length, page), mapping().length());
  for (std::uint64_t at = round_down(offset, page); at < end;) {
    const std::uint64_t bytes = std::min(end - at, pages.size() * page);
    if (sys::mincore(mapping().data() + at, bytes, pages.data()) != 0) return false;
    const auto count = static_cast<std::ptrdiff_t>(divide_up(bytes, page));
    const auto absent = [](unsigned char flags) { return (flags & 1) == 0; };
    if (std::any_of(pages.begin(), pages.begin() + count, absent)) return false;
    at += bytes;
  }
  return true;
}

}  // namespace evenkeel
