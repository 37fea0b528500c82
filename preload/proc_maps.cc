#include "preload/proc_maps.h"

#include <sys/ioctl.h>

#include "preload/raw_calls.h"

namespace evenkeel::preload {
namespace {

// Not "self", which is the main thread: after it has ended by pthread_exit, its maps are empty.
constexpr char kPath[] = "/proc/thread-self/maps";

// For PROCMAP_QUERY, which older headers lack.
struct Query {
  std::uint64_t size, flags, address;                             // in
  std::uint64_t begin, end, vma_flags, page_size, offset, inode;  // out
  std::uint32_t device_major, device_minor, name_size, build_id_size;
  std::uint64_t name, build_id;
};
constexpr unsigned long kQuery = _IOWR('f', 17, Query);
constexpr std::uint64_t kCoveringOrNext = 0x10, kQueryWritable = 0x02, kQueryShared = 0x08;

struct Vma {
  std::uint64_t begin = 0, end = 0, offset = 0, device = 0, inode = 0;
  bool writable = false, shared = false;
};

std::uint64_t device_number(std::uint64_t high, std::uint64_t low) {
  return (high << 32 | low) + 1;  // 0 means unknown
}

// Compares the VMAs in a range with an entry, in the order of their addresses.
class Comparison {
 public:
  Comparison(Range range, const Entry& entry) : range_(range), entry_(entry), at_(range.begin) {}
  // Returns false if no more VMAs are needed.
  bool next(const Vma& vma) {
    if (vma.end <= at_) return true;
    if (!continues(vma)) {
      other_ = true;
      return false;
    }
    finding_.device = vma.device;
    finding_.writable |= vma.writable;
    at_ = vma.end;
    return at_ < range_.end;
  }
  ProcMaps::Finding finding() const {
    ProcMaps::Finding finding = finding_;
    finding.readable = true;
    finding.same = !other_ && at_ >= range_.end;
    return finding;
  }
  std::uint64_t at() const { return at_; }

 private:
  bool continues(const Vma& vma) const {
    const std::uint64_t device = entry_.device != 0 ? entry_.device : finding_.device;
    return vma.begin <= at_ && vma.inode == entry_.inode && vma.inode != 0 &&
           (device == 0 || vma.device == device) &&
           vma.shared == ((entry_.flags & shared_table::kShared) != 0) &&
           vma.offset - vma.begin == entry_.offset - entry_.begin;
  }
  const Range range_;
  const Entry& entry_;
  std::uint64_t at_;
  bool other_ = false;
  ProcMaps::Finding finding_;
};

// Returns false if the kernel does not support the query.
bool by_query(long fd, Range range, Comparison& comparison) {
  do {
    Query query{};
    query.size = sizeof query;
    query.flags = kCoveringOrNext;
    query.address = comparison.at();
    const long result = raw(SYS_ioctl, fd, kQuery, &query);
    if (result == -ENOENT) return true;  // no mapping at or after this address
    if (result != 0) return false;
    const Vma vma{query.begin,
                  query.end,
                  query.offset,
                  device_number(query.device_major, query.device_minor),
                  query.inode,
                  (query.vma_flags & kQueryWritable) != 0,
                  (query.vma_flags & kQueryShared) != 0};
    if (!comparison.next(vma)) return true;
  } while (comparison.at() < range.end);
  return true;
}

// 7f0000000000-7f0000200000 r--s 00000000 fe:00 1234                       /data/train.bin
// Reads a line character by character, because a buffer may end inside it. Only the first five
// words are used.
class LineReader {
 public:
  // Returns true at the end of a well-formed line.
  bool take(char c) {
    if (c == '\n') {
      const bool whole = word_ >= 5 || (word_ == 4 && digits_);
      vma_.inode = number_[5];
      word_ = 0;
      digits_ = false;
      return whole;
    }
    if (word_ == 0 && !digits_) start();
    if (word_ >= 5) return false;
    if (c == ' ' || (word_ == 0 && c == '-') || (word_ == 3 && c == ':')) {
      end_part(c);
      return false;
    }
    digits_ = true;
    if (word_ == 1) {
      vma_.writable |= c == 'w';
      vma_.shared |= c == 's';
    } else {
      const std::uint64_t base = word_ == 4 ? 10 : 16;
      number_[part_] = number_[part_] * base +
                       static_cast<std::uint64_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return false;
  }
  Vma vma() const {
    Vma vma = vma_;
    vma.begin = number_[0];
    vma.end = number_[1];
    vma.offset = number_[2];
    vma.device = device_number(number_[3], number_[4]);
    return vma;
  }

 private:
  void start() {
    vma_ = {};
    for (std::uint64_t& number : number_) number = 0;
    part_ = 0;
  }
  void end_part(char c) {
    if (word_ != 1) ++part_;
    if (c == ' ') ++word_;
  }
  Vma vma_;
  std::uint64_t number_[7] = {};  // begin, end, offset, two of the device, inode
  int part_ = 0;
  int word_ = 0;  // range, permissions, offset, device, inode, name
  bool digits_ = false;
};

// Returns false if the file cannot be read.
bool by_text(long fd, char* buffer, std::size_t size, Comparison& comparison) {
  LineReader line;
  for (;;) {
    const long got = raw_read(fd, buffer, size);
    if (got < 0) return false;
    if (got == 0) return true;
    for (long i = 0; i < got; ++i) {
      if (line.take(buffer[i]) && !comparison.next(line.vma())) return true;
    }
  }
}

}  // namespace

ProcMaps::ProcMaps(bool keep_open) : keep_open_(keep_open) {
  if (keep_open_) fd_ = raw_open(kPath, O_RDONLY);
}

ProcMaps::~ProcMaps() {
  if (keep_open_ && fd_ >= 0) raw_close(fd_);
}

ProcMaps::Finding ProcMaps::look(Range range, const Entry& entry) {
  const long fd = keep_open_ ? fd_ : raw_open(kPath, O_RDONLY);
  if (fd < 0) return {};
  Finding finding;
  if (Comparison queried(range, entry); query_works_ && by_query(fd, range, queried)) {
    finding = queried.finding();
  } else {
    query_works_ = false;
    if (keep_open_) raw(SYS_lseek, fd, 0L, SEEK_SET);
    Comparison read(range, entry);
    if (by_text(fd, buffer_, sizeof buffer_, read)) finding = read.finding();
  }
  if (!keep_open_) raw_close(fd);
  return finding;
}

}  // namespace evenkeel::preload
