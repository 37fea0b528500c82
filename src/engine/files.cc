#include "engine/files.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/kept_file.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

// Enough for all reads in flight, but no more than a quarter of the process's limit.
std::size_t descriptor_share() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 64;
  return std::clamp<std::size_t>(limit.rlim_cur / 4, 8, 128);
}

bool is_same_file(const FileIdentity& a, const FileIdentity& b) {
  return a.device == b.device && a.inode == b.inode;
}

// Opens the file of the descriptor that was kept. Empty if that fails; errno is then the reason (0:
// no descriptor was kept, or it now belongs to another file).
Fd open_kept(const Segment& segment, int flags) {
  errno = 0;
  if (!segment.kept) return {};
  Fd fd = segment.kept->open_again(flags | O_NOATIME);
  if (!fd) fd = segment.kept->open_again(flags);
  struct stat status;
  if (!fd || sys::fstat(fd.get(), &status) != 0) return {};
  if (is_same_file(FileIdentity(status), segment.identity)) return fd;
  errno = 0;
  return {};
}

// Reading should not change the access time. Only the owner of a file may use O_NOATIME.
Fd open_by_name(const std::string& path, int flags) {
  try {
    return open_readable(path, flags | O_NOATIME);
  } catch (const Error& error) {
    if (error.code() != EPERM) throw;
    return open_readable(path, flags);
  }
}

// Whether ctime moved for a reason other than a write: the file was linked, unlinked or renamed, or
// its mode or owner changed.
bool ctime_is_explained(const FileIdentity& now, const Segment& segment) {
  const FileIdentity& then = segment.identity;
  if (now.links != then.links || now.mode != then.mode || now.owner != then.owner ||
      now.group != then.group) {
    return true;
  }
  const Fd by_name(sys::open(segment.path.c_str(), O_PATH));
  struct stat status;
  return !by_name || sys::fstat(by_name.get(), &status) != 0 ||
         !is_same_file(FileIdentity(status), then);
}

}  // namespace

Fd open_again(const Segment& segment, int flags) {
  if (Fd fd = open_kept(segment, flags)) return fd;
  // The filesystem refuses the flags: opening by name would fail as well.
  if (errno == EINVAL || errno == EOPNOTSUPP) throw Error::system("open", errno).in(segment.path);
  return open_by_name(segment.path, flags);
}

void require_unchanged(int fd, const Segment& segment) {
  const FileIdentity& then = segment.identity;
  struct stat status;
  if (sys::fstat(fd, &status) != 0) throw Error::system("stat", errno).in(segment.path);
  const FileIdentity now(status);
  if (!is_same_file(now, then)) {
    throw Error(ErrorKind::kFormat, "read", "another file has taken this name since it was opened")
        .in(segment.path)
        .hint("open the array again");
  }
  if (now.size != then.size) {
    throw Error(ErrorKind::kFormat, "read",
                "the file changed while open: it had " + with_commas(then.size) +
                    " bytes, now it has " + with_commas(now.size))
        .in(segment.path)
        .at(std::min(now.size, then.size))
        .hint("open the array again once nobody writes to it");
  }
  if (now.mtime_ns != then.mtime_ns) {
    throw Error(ErrorKind::kFormat, "read", "the file was written to while open")
        .in(segment.path)
        .hint("open the array again once nobody writes to it");
  }
  if (now.ctime_ns != then.ctime_ns && !ctime_is_explained(now, segment)) {
    throw Error(ErrorKind::kFormat, "read",
                "the file may have been written to while open: its ctime changed, although its "
                "size and mtime did not")
        .in(segment.path)
        .hint("open the array again once nobody writes to it");
  }
}

bool surely_unchanged(const Segment& segment) {
  struct stat status;
  return segment.kept && sys::fstat(segment.kept->fd(), &status) == 0 &&
         FileIdentity(status) == segment.identity;
}

void throw_truncated(const Segment& segment, std::uint64_t offset) {
  throw Error(ErrorKind::kFormat, "read",
              "the file ended early: it had " + with_commas(segment.identity.size) +
                  " bytes when it was opened")
      .in(segment.path)
      .at(offset)
      .hint("the file was truncated while open; restore it and open the array again");
}

FileSet::FileSet(const Layout& layout, int flags, int advice)
    : layout_(layout),
      flags_(flags),
      advice_(advice),
      slots_(layout.segments.size()),
      most_open_(descriptor_share()) {}

bool FileSet::close_oldest() {
  Slot* oldest = nullptr;
  for (Slot& slot : slots_) {
    if (slot.fd && slot.pins == 0 && (!oldest || slot.last_use < oldest->last_use)) oldest = &slot;
  }
  if (!oldest) return false;
  if (oldest->used) {
    try {
      verify(static_cast<std::uint32_t>(oldest - slots_.data()));
    } catch (...) {  // for verify and verify_used: this call is for another file
      oldest->changed = true;
      if (!closed_changed_) closed_changed_ = std::current_exception();
    }
  }
  oldest->fd.reset();
  --open_;
  return true;
}

int FileSet::pin(std::uint32_t file) {
  Slot& slot = slots_[file];
  if (!slot.fd) {
    const Segment& segment = layout_.segments[file];
    if (open_ >= most_open_) close_oldest();
    Fd fd;
    while (!fd) {
      try {
        fd = open_again(segment, flags_);
      } catch (const Error& error) {
        if ((error.code() != EMFILE && error.code() != ENFILE) || !close_oldest()) throw;
      }
    }
    require_unchanged(fd.get(), segment);
    slot.fd = std::move(fd);
    ++open_;
    if (advice_ >= 0) sys::fadvise(slot.fd.get(), 0, 0, advice_);
  }
  if (!slot.used) {
    slot.used = true;
    used_.push_back(file);
  }
  slot.last_use = ++clock_;
  if (slot.pins++ == 0) ++pinned_;
  return slot.fd.get();
}

void FileSet::unpin(std::uint32_t file) {
  if (--slots_[file].pins == 0) --pinned_;
}

void FileSet::verify(std::uint32_t file) {
  const Slot& slot = slots_[file];
  if (slot.fd) return require_unchanged(slot.fd.get(), layout_.segments[file]);
  if (slot.changed) std::rethrow_exception(closed_changed_);
}

void FileSet::forget_used() {
  for (std::uint32_t file : used_) slots_[file].used = slots_[file].changed = false;
  used_.clear();
  closed_changed_ = nullptr;
}

void FileSet::verify_used() {
  // Clear first, so that one changed file does not fail later reads of other files.
  const std::vector<std::uint32_t> used = used_;
  const std::exception_ptr changed = closed_changed_;
  forget_used();
  if (changed) std::rethrow_exception(changed);
  for (std::uint32_t file : used) verify(file);
}

}  // namespace evenkeel
