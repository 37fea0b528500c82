#include "guard/guarded_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/checked.h"
#include "base/readahead.h"
#include "base/sys.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kPagesToSample = 1 << 15;  // takes about half a millisecond
constexpr unsigned kWriteAndWait =
    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;

// The addresses at which a mapping shows a range of the file. Empty if it shows none of it.
std::optional<AddressRange> shown_by(const GuardedMapping& mapping, std::uint64_t begin,
                                     std::uint64_t end) {
  const std::uint64_t first = std::max(begin, mapping.file_offset());
  const std::uint64_t last = std::min(end, mapping.file_offset() + mapping.length());
  if (first >= last) return std::nullopt;
  const std::uint64_t to_address = mapping.range().begin - mapping.file_offset();
  return AddressRange{first + to_address, last + to_address};
}

}  // namespace

bool lies_in_memory(int fd) {
  struct statfs status;
  return ::fstatfs(fd, &status) == 0 &&
         (status.f_type == TMPFS_MAGIC || status.f_type == HUGETLBFS_MAGIC ||
          status.f_type == RAMFS_MAGIC);
}

bool owns_or_may_write(int fd) {
  struct stat status;
  if (sys::fstat(fd, &status) == 0 && status.st_uid == ::geteuid()) return true;
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  return ::faccessat(AT_FDCWD, self.c_str(), W_OK, AT_EACCESS) == 0;
}

GuardedFile::GuardedFile(Fd fd, const GuardOptions& options, std::unique_ptr<GuardedMapping> first)
    : fd_(std::move(fd)),
      options_(options),
      name_(first->name()),
      begin_(first->file_offset()),
      length_(first->length()),
      cache_map_(begin_, length_, options.budget) {
  mappings_.push_back(std::move(first));
  if (const auto id = mappings_.front()->file_id(); id && this->fd() < 0) {
    how_ = How::kUncounted;
    limitation_ = name() +
                  " was deleted and cannot be opened: bytes read by the process are counted "
                  "instead, and all pages are released together";
    advise_first(*mappings_.front());
    return;
  }
  struct stat status;
  if (sys::fstat(this->fd(), &status) != 0) throw Error::system("guard", errno, name());
  readahead_ = readahead_window(status.st_dev);
  sys::CacheStat stat{};
  if (lies_in_memory(this->fd())) {
    how_ = How::kInert;
    limitation_ = name() + " lies in memory (tmpfs or hugetlbfs): its pages cannot be released";
  } else if (options.keep_cache) {
    how_ = How::kUncounted;
  } else if (sys::cachestat(this->fd(), begin_, 1, &stat) != 0) {
    how_ = How::kUncounted;
    limitation_ =
        name() + ": its page cache cannot be counted (" +
        (owns_or_may_write(this->fd()) ? "cachestat needs Linux 6.5"
                                       : "this user neither owns the file nor may write to it") +
        "); bytes read by the process are counted instead, and all pages are released "
        "together";
  }
  if (how_ != How::kInert) advise_first(*mappings_.front());
}

int GuardedFile::fd() const {
  if (fd_) return fd_.get();
  const auto has_one = [](const auto& mapping) { return mapping->descriptor() >= 0; };
  const auto place = std::ranges::find_if(mappings_, has_one);
  return place == mappings_.end() ? -1 : (*place)->descriptor();
}

void GuardedFile::adopt(Fd fd) {
  if (!fd_) fd_ = std::move(fd);
}

bool GuardedFile::reopen() {
  if (fd() < 0 && reopen_) fd_ = reopen_();
  return fd() >= 0;
}

void GuardedFile::close_unmapped() {
  if (mappings_.empty() && reopen_) fd_.reset();
}

// Opens a file without mappings for a scope.
class GuardedFile::Reopened {
 public:
  explicit Reopened(GuardedFile& file) : file_(file) { file_.reopen(); }
  ~Reopened() { file_.close_unmapped(); }
  Reopened(const Reopened&) = delete;
  Reopened& operator=(const Reopened&) = delete;

 private:
  GuardedFile& file_;
};

std::uint64_t GuardedFile::readahead() const {
  if (random_ || options_.access == GuardAccess::kRandom) return 0;
  return limited_ ? std::min(readahead_, GuardedMapping::kLimitedReadahead) : readahead_;
}

void GuardedFile::add(std::unique_ptr<GuardedMapping> mapping) {
  cover(mapping->file_offset(), mapping->file_offset() + mapping->length());
  if (how_ != How::kInert) advise_first(*mapping);
  mappings_.push_back(std::move(mapping));
}

// The range only grows, so that the ages of parts are kept.
void GuardedFile::cover(std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t first = std::min(begin, begin_), last = std::max(end, begin_ + length_);
  if (first == begin_ && last == begin_ + length_) return;
  CacheMap wider(first, last - first, options_.budget);
  wider.take_over(cache_map_);
  cache_map_ = std::move(wider);
  begin_ = first;
  length_ = last - first;
}

void GuardedFile::limit_readahead() {
  if (limited_ || readahead_ <= GuardedMapping::kLimitedReadahead) return;
  limited_ = true;
  if (random_) return;
  for (const auto& mapping : mappings_) advise_readahead(*mapping);
}

// Turns readahead on, in full or limited.
void GuardedFile::advise_readahead(GuardedMapping& mapping) {
  if (limited_ && mapping.limit_readahead(mapping.range()) != 0) limited_ = false;
  if (!limited_) advise_all_of(mapping, MADV_NORMAL);
}

void GuardedFile::advise_first(GuardedMapping& mapping) {
  if (limited_ && !random_) advise_readahead(mapping);
  if (options_.access == GuardAccess::kRandom || random_) advise_all_of(mapping, MADV_RANDOM);
  if (options_.access == GuardAccess::kSequential) advise_all_of(mapping, MADV_SEQUENTIAL);
}

void GuardedFile::advise_all_of(GuardedMapping& mapping, int advice) {
  mapping.advise(mapping.range(), advice);
}

GuardedMapping* GuardedFile::find(std::uint64_t key) const {
  const auto place = std::ranges::find(mappings_, key, [](const auto& one) { return one->key(); });
  return place == mappings_.end() ? nullptr : place->get();
}

bool GuardedFile::remove(std::uint64_t key) {
  GuardedMapping* const mapping = find(key);
  if (mapping == nullptr) return false;
  const bool advised = random_ || limited_ || returns_ != 0 ||
                       options_.access == GuardAccess::kRandom ||
                       options_.access == GuardAccess::kSequential;
  if (advised && mapping->still_there()) advise_all_of(*mapping, MADV_NORMAL);
  std::erase_if(mappings_, [&](const auto& one) { return one.get() == mapping; });
  close_unmapped();
  return true;
}

void GuardedFile::forget_lost(const std::function<void(const GuardedMapping&)>& lost) {
  std::erase_if(mappings_, [&](const auto& one) {
    if (one->still_there()) return false;
    lost(*one);
    return true;
  });
  close_unmapped();
}

bool GuardedFile::deleted() const {
  struct stat status;
  return sys::fstat(fd(), &status) == 0 && status.st_nlink == 0;
}

CacheMap::Found GuardedFile::cached_in(CacheMap::Range part) const {
  sys::CacheStat stat{};
  if (sys::cachestat(fd(), begin_ + part.begin, part.length, &stat) != 0) return {};
  return {stat.cached * sys::page_size(), (stat.dirty + stat.writeback) * sys::page_size()};
}

void GuardedFile::look(std::uint64_t now) {
  const Reopened reopened(*this);
  cache_map_.look(now, [this](CacheMap::Range part) { return cached_in(part); });
}

void GuardedFile::write_back(CacheMap::Range part, unsigned flags) const {
  sys::sync_file_range(fd(), begin_ + part.begin, part.length, flags);
}

// Only starts the release: the mappings may belong to many processes, which then work at the same
// time. finish_let_go() waits for them.
int GuardedFile::start_let_go(CacheMap::Range part) {
  const std::uint64_t begin = begin_ + part.begin;
  int error = 0;
  for (const auto& mapping : mappings_) {
    const auto shown = shown_by(*mapping, begin, begin + part.length);
    if (!shown) continue;
    if (const int refused = mapping->start_let_go(*shown); refused != 0) error = refused;
  }
  return error;
}

int GuardedFile::finish_let_go(CacheMap::Range part) {
  const std::uint64_t begin = begin_ + part.begin;
  int error = 0;
  for (const auto& mapping : mappings_) {
    if (!shown_by(*mapping, begin, begin + part.length)) continue;
    if (const int refused = mapping->finish_let_go(); refused != 0) error = refused;
  }
  if (!options_.keep_cache) sys::fadvise(fd(), begin, part.length, POSIX_FADV_DONTNEED);
  return error;
}

int GuardedFile::start_release(std::size_t part) { return start_let_go(cache_map_.range(part)); }

int GuardedFile::finish_release(std::size_t part, std::uint64_t now) {
  const Reopened reopened(*this);
  const CacheMap::Range range = cache_map_.range(part);
  const int error = finish_let_go(range);
  cache_map_.released(part, cached_in(range), now);
  return error;
}

int GuardedFile::release_all() {
  const Reopened reopened(*this);
  if (!options_.keep_cache) write_back({0, length_}, kWriteAndWait);
  const int refused = start_let_go({0, length_});
  const int error = finish_let_go({0, length_});
  return refused != 0 ? refused : error;
}

std::optional<AccessSample> GuardedFile::sample() const {
  std::vector<std::size_t> parts;
  for (std::size_t part = 0; part < cache_map_.size(); ++part) {
    if (!counted() || cache_map_[part].grown != 0) parts.push_back(part);
  }
  AccessSample sample;
  if (parts.empty()) return sample;
  const std::uint64_t page = sys::page_size();
  std::uint64_t window = cache_map_.part_bytes();
  if (counted()) {
    window = std::min(window, std::max<std::uint64_t>(kPagesToSample / parts.size(), 256) * page);
  }
  const std::size_t step = std::max<std::size_t>(parts.size() * window / page / kPagesToSample, 1);
  for (std::size_t i = 0; i < parts.size(); i += counted() ? step : 1) {
    CacheMap::Range range = cache_map_.range(parts[i]);
    range.length = std::min(range.length, window);
    if (counted()) sample.cached += cached_in(range).cached / page;
    const std::uint64_t begin = begin_ + range.begin;
    for (const auto& mapping : mappings_) {
      const auto shown = shown_by(*mapping, begin, begin + range.length);
      if (shown && !mapping->count_resident(*shown, sample)) return std::nullopt;
    }
  }
  return sample;
}

void GuardedFile::set_random(bool random) {
  random_ = random;
  if (!random) ++returns_;
  for (const auto& mapping : mappings_) {
    if (limited_ && random) advise_all_of(*mapping, MADV_NOHUGEPAGE);
    if (random) advise_all_of(*mapping, MADV_RANDOM);
    if (!random) advise_readahead(*mapping);
  }
  if (on_switch_) on_switch_(random);
}

void GuardedFile::forgotten() {
  if (random_ && on_switch_) on_switch_(false);
}

}  // namespace evenkeel
