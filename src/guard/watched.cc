#include "guard/watched.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/checked.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

#ifdef MADV_PAGEOUT
constexpr int kPageOut = MADV_PAGEOUT;
#else
constexpr int kPageOut = 21;  // Linux 5.4; older headers lack the name
#endif
constexpr std::uint64_t kPagesToSample = 1 << 15;  // takes about half a millisecond

AddressRange range_of(const GuardMapping& mapping) {
  const auto begin = reinterpret_cast<std::uint64_t>(mapping.address);
  const std::uint64_t page = sys::page_size();
  const auto end = checked_add(begin, mapping.length);
  if (begin == 0 || begin % page != 0 || mapping.length == 0 || !end ||
      *end > ~std::uint64_t{0} - page || mapping.file_offset % page != 0) {
    throw Error(ErrorKind::kInvalid, "guard",
                "address " + std::to_string(begin) + ", length " + std::to_string(mapping.length) +
                    ", file offset " + std::to_string(mapping.file_offset) + " is no mapping")
        .hint("give address, length and offset as mmap got and gave them");
  }
  return {begin, round_up(*end, page)};
}

bool lies_in_memory(int fd) {
  struct statfs status;
  return ::fstatfs(fd, &status) == 0 &&
         (status.f_type == TMPFS_MAGIC || status.f_type == HUGETLBFS_MAGIC ||
          status.f_type == RAMFS_MAGIC);
}

// What MADV_PAGEOUT and cachestat ask of a user.
bool owns_or_may_write(int fd, const struct stat& status) {
  if (status.st_uid == ::geteuid()) return true;
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  return ::faccessat(AT_FDCWD, self.c_str(), W_OK, AT_EACCESS) == 0;
}

}  // namespace

Watched::Watched(const GuardMapping& mapping, const GuardOptions& options, const Maps& maps)
    : maps_(maps),
      begin_(static_cast<char*>(mapping.address)),
      range_(range_of(mapping)),
      file_offset_(mapping.file_offset),
      promised_(mapping.removed_before_unmap),
      keep_cache_(options.keep_cache),
      segments_(file_offset_, length(), options.budget) {
  open(mapping.fd);
  struct stat status;
  if (sys::fstat(fd_.get(), &status) != 0) throw Error::system("guard", errno, name());
  const std::vector<Vma> found = maps.in(range_);
  if (!found.empty()) vma_ = found.front();
  vma_.offset += range_.begin - vma_.range.begin;
  vma_.range.begin = range_.begin;
  // The device is not compared: on some file systems maps and stat have different numbers for it.
  if (!S_ISREG(status.st_mode) || vma_.inode != status.st_ino || vma_.offset != file_offset_ ||
      !covers(found, range_, vma_)) {
    throw Error(ErrorKind::kInvalid, "guard",
                name() + " is not a mapping of inode " + std::to_string(status.st_ino) +
                    " from byte " + std::to_string(file_offset_) + " on, by /proc/self/maps")
        .hint("only mappings of regular files can be governed; give the descriptor they are of");
  }
  if (lies_in_memory(fd_.get())) {
    how_ = How::kInert;
    limitation_ = name() + " lies in memory (tmpfs or hugetlbfs): its pages cannot be released";
    return;
  }
  const bool permitted = owns_or_may_write(fd_.get(), status);
  refuse_what_cannot_work(permitted);
  sys::CacheStat stat{};
  if (keep_cache_ || sys::cachestat(fd_.get(), file_offset_, 1, &stat) != 0) {
    how_ = How::kUncounted;
    if (!keep_cache_) {
      limitation_ = name() + ": its page cache cannot be counted (" +
                    (permitted ? "cachestat needs Linux 6.5"
                               : "this user neither owns the file nor may write it") +
                    "); bytes read by the process are counted instead, and all pages released "
                    "together";
    }
  }
  if (options.access == GuardAccess::kRandom) advise_all(MADV_RANDOM);
  if (options.access == GuardAccess::kSequential) advise_all(MADV_SEQUENTIAL);
}

void Watched::open(int fd) {
  fd_ = Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!fd_) {
    throw Error::system("guard", errno, "descriptor " + std::to_string(fd))
        .hint("give an open descriptor of the mapped file");
  }
}

std::string Watched::name() const {
  char text[64];
  std::snprintf(text, sizeof text, "mapping at 0x%llx, ",
                static_cast<unsigned long long>(range_.begin));
  return text + format_size(length());
}

void Watched::refuse_what_cannot_work(bool permitted) const {
  if (promised_ && vma_.shared) return;
  const std::string because =
      vma_.shared ? "without the promise to remove it before unmapping" : "because it is private";
  if (keep_cache_) {
    throw Error(ErrorKind::kInvalid, "guard",
                name() + " cannot be governed with keep_cache " + because)
        .hint("what may be used on it, MADV_PAGEOUT, drops the page cache as well");
  }
  if (!permitted) {
    throw Error(ErrorKind::kInvalid, "guard",
                name() + " cannot be governed " + because +
                    ", since this user neither owns the file nor may write it")
        .hint(
            "what may be used on it, MADV_PAGEOUT, asks for that; map it shared and set "
            "removed_before_unmap");
  }
}

Segments::Found Watched::cached_in(Segments::Range part) const {
  sys::CacheStat stat{};
  if (sys::cachestat(fd_.get(), file_offset_ + part.begin, part.length, &stat) != 0) return {};
  return {stat.cached * sys::page_size(), (stat.dirty + stat.writeback) * sys::page_size()};
}

void Watched::look(std::uint64_t now) {
  segments_.look(now, [this](Segments::Range part) { return cached_in(part); });
}

int Watched::advise(Segments::Range part, int advice) const {
  return sys::madvise(begin_ + part.begin, part.length, advice);
}

void Watched::start_writing(std::size_t part) {
  if (segments_[part].dirty == 0) return;
  const Segments::Range range = segments_.range(part);
  sys::sync_file_range(fd_.get(), file_offset_ + range.begin, range.length, SYNC_FILE_RANGE_WRITE);
}

// MADV_DONTNEED is for shared mappings of which nobody else takes the place: there it cannot lose
// anything, since changed pages stay in the page cache. Everywhere else it would, so a promise is
// checked each time. MADV_PAGEOUT loses nothing anywhere.
bool Watched::let_go(Segments::Range part) {
  const bool may_forget = promised_ && vma_.shared && still_there();
  const bool done = advise(part, may_forget ? MADV_DONTNEED : kPageOut) == 0;
  const int code = errno;
  if (!keep_cache_) {
    sys::fadvise(fd_.get(), file_offset_ + part.begin, part.length, POSIX_FADV_DONTNEED);
  }
  errno = code;
  return done;
}

bool Watched::release(std::size_t part, std::uint64_t now) {
  const Segments::Range range = segments_.range(part);
  if (segments_[part].dirty != 0) {  // neither advice drops what is not written
    sys::sync_file_range(
        fd_.get(), file_offset_ + range.begin, range.length,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  }
  const bool done = let_go(range);
  const int code = errno;
  segments_.released(part, cached_in(range), now);
  errno = code;
  return done;
}

bool Watched::release_all() {
  if (!keep_cache_) {
    sys::sync_file_range(
        fd_.get(), file_offset_, length(),
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  }
  return let_go({0, length()});
}

std::optional<AccessSample> Watched::sample(PageMap& pages) const {
  std::vector<std::size_t> parts;
  for (std::size_t part = 0; part < segments_.size(); ++part) {
    if (!counted() || segments_[part].grown != 0) parts.push_back(part);
  }
  AccessSample sample;
  if (parts.empty()) return sample;
  const std::uint64_t page = sys::page_size();
  std::uint64_t window = segments_.part_bytes();
  if (counted()) {
    window = std::min(window, std::max<std::uint64_t>(kPagesToSample / parts.size(), 256) * page);
  }
  const std::size_t step = std::max<std::size_t>(parts.size() * window / page / kPagesToSample, 1);
  for (std::size_t i = 0; i < parts.size(); i += counted() ? step : 1) {
    Segments::Range range = segments_.range(parts[i]);
    range.length = std::min(range.length, window);
    if (counted()) sample.cached += cached_in(range).cached / page;
    const std::uint64_t begin = range_.begin + range.begin;
    if (!pages.count({begin, begin + range.length}, sample)) return std::nullopt;
  }
  return sample;
}

void Watched::advise_all(int advice) { advised_ = advise({0, length()}, advice) == 0 || advised_; }

void Watched::set_random(bool random) {
  advise_all(random ? MADV_RANDOM : MADV_NORMAL);
  random_ = random;
  if (!random) ++returns_;
}

void Watched::restore_advice() {
  if (advised_) advise_all(MADV_NORMAL);
}

}  // namespace evenkeel
