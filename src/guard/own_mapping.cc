#include "guard/own_mapping.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>

#include "base/checked.h"
#include "base/sys.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "guard/guarded_file.h"
#include "guard/page_out.h"

namespace evenkeel {
namespace {

AddressRange range_of(const GuardMapping& mapping) {
  const auto begin = reinterpret_cast<std::uint64_t>(mapping.address);
  const std::uint64_t page = sys::page_size();
  const auto end = checked_add(begin, mapping.length);
  if (begin == 0 || begin % page != 0 || mapping.length == 0 || !end ||
      *end > ~std::uint64_t{0} - page || mapping.file_offset % page != 0) {
    throw Error(ErrorKind::kInvalid, "guard",
                "address " + std::to_string(begin) + ", length " + std::to_string(mapping.length) +
                    ", file offset " + std::to_string(mapping.file_offset) + " is not a mapping")
        .hint("pass the length and offset given to mmap, and the address that mmap returned");
  }
  return {begin, round_up(*end, page)};
}

}  // namespace

std::string GuardedMapping::name() const {
  char text[64];
  std::snprintf(text, sizeof text, "mapping at 0x%llx, ",
                static_cast<unsigned long long>(range_.begin));
  return text + format_size(length());
}

OwnMapping::OwnMapping(const GuardMapping& mapping, const GuardOptions& options, const Maps& maps,
                       PageMap& pages)
    : GuardedMapping(reinterpret_cast<std::uint64_t>(mapping.address), range_of(mapping),
                     mapping.file_offset),
      maps_(maps),
      pages_(pages),
      promised_(mapping.removed_before_unmap),
      fd_(mapping.closed_after_remove ? mapping.fd : -1) {
  struct stat status;
  if (sys::fstat(mapping.fd, &status) != 0) {
    throw Error::system("guard", errno, "descriptor " + std::to_string(mapping.fd))
        .hint("pass an open descriptor of the mapped file");
  }
  const std::vector<Vma> found = maps.in(range());
  if (!found.empty()) vma_ = found.front();
  vma_.offset += range().begin - vma_.range.begin;
  vma_.range.begin = range().begin;
  // The device is not compared: on some file systems maps and stat have different numbers for it.
  if (!S_ISREG(status.st_mode) || vma_.inode != status.st_ino || vma_.offset != file_offset() ||
      !covers(found, range(), vma_)) {
    throw Error(ErrorKind::kInvalid, "guard",
                name() + " is not a mapping of inode " + std::to_string(status.st_ino) +
                    " from byte " + std::to_string(file_offset()) +
                    " on, according to /proc/self/maps")
        .hint(
            "only mappings of regular files can be guarded; pass a descriptor of the mapped file");
  }
  if (!lies_in_memory(mapping.fd)) refuse_what_cannot_work(mapping.fd, options.keep_cache);
}

void OwnMapping::refuse_what_cannot_work(int fd, bool keep_cache) const {
  if (promised_ && vma_.shared) return;
  const std::string because =
      vma_.shared ? "without the promise to remove it before unmapping" : "because it is private";
  if (keep_cache) {
    throw Error(ErrorKind::kInvalid, "guard",
                name() + " cannot be guarded with keep_cache " + because)
        .hint("it can only be released with MADV_PAGEOUT, which drops the page cache as well");
  }
  if (!owns_or_may_write(fd)) {
    throw Error(ErrorKind::kInvalid, "guard",
                name() + " cannot be guarded " + because +
                    ": this user neither owns the file nor may write to it")
        .hint(
            "it can only be released with MADV_PAGEOUT, which requires that; map the file shared "
            "and set removed_before_unmap");
  }
}

int OwnMapping::advise(AddressRange range, int advice) {
  void* const at = reinterpret_cast<void*>(range.begin);  // NOLINT(performance-no-int-to-ptr)
  return sys::madvise(at, range.end - range.begin, advice) == 0 ? 0 : errno;
}

// MADV_DONTNEED is safe for a shared mapping: changed pages stay in the page cache. It would
// discard data of a private mapping that has taken its place, so the user's promise to remove
// mappings first is checked each time. MADV_PAGEOUT never discards data.
int OwnMapping::let_go(AddressRange range) {
  const bool may_forget = promised_ && vma_.shared && still_there();
  return advise(range, may_forget ? MADV_DONTNEED : kPageOut);
}

}  // namespace evenkeel
