#include "engine/files.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/modified.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

// Enough for every reader in flight, a quarter of what the process may have at most.
std::size_t descriptor_share() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 64;
  return std::clamp<std::size_t>(limit.rlim_cur / 4, 8, 128);
}

// Reading should not even touch the access time; only a file's owner may ask for that.
Fd open_quietly(const std::string& path, int flags) {
  try {
    return open_readable(path, flags | O_NOATIME);
  } catch (const Error& error) {
    if (error.code() != EPERM) throw;
    return open_readable(path, flags);
  }
}

}  // namespace

void require_unchanged(int fd, const Segment& segment) {
  struct stat now;
  if (sys::fstat(fd, &now) != 0) throw Error::system("stat", errno).in(segment.path);
  const FileIdentity& then = segment.identity;
  const auto size = static_cast<std::uint64_t>(now.st_size);
  if (now.st_dev != then.device || now.st_ino != then.inode) {
    throw Error(ErrorKind::kFormat, "read", "another file has taken this name since it was opened")
        .in(segment.path)
        .hint("open the array again");
  }
  if (size != then.size) {
    throw Error(ErrorKind::kFormat, "read",
                "the file changed while open: it had " + with_commas(then.size) +
                    " bytes, now it has " + with_commas(size))
        .in(segment.path)
        .at(std::min(size, then.size))
        .hint("open the array again once nobody writes to it");
  }
  if (modified_ns(now) != then.mtime_ns) {
    throw Error(ErrorKind::kFormat, "read", "the file was written to while open")
        .in(segment.path)
        .hint("open the array again once nobody writes to it");
  }
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
  if (oldest->used && !closed_changed_) {
    try {
      verify(static_cast<std::uint32_t>(oldest - slots_.data()));
    } catch (...) {
      closed_changed_ = std::current_exception();  // for verify_used: this call is about another
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
        fd = open_quietly(segment.path, flags_);
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
  if (!slots_[file].fd) return;
  require_unchanged(slots_[file].fd.get(), layout_.segments[file]);
}

void FileSet::forget_used() {
  for (std::uint32_t file : used_) slots_[file].used = false;
  used_.clear();
  closed_changed_ = nullptr;
}

void FileSet::verify_used() {
  // Cleared first, so that one changed file does not fail every later read of the others.
  const std::vector<std::uint32_t> used = used_;
  const std::exception_ptr changed = closed_changed_;
  forget_used();
  if (changed) std::rethrow_exception(changed);
  for (std::uint32_t file : used) verify(file);
}

}  // namespace evenkeel
