// The descriptors of an array's files: opened when first needed, a bounded number at a time, each
// checked to be the file that was opened at the start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "base/fd.h"
#include "format/layout.h"

namespace evenkeel {

// One thread at a time. `layout` must outlive it.
class FileSet {
 public:
  // `flags` go to open(2) in addition to O_RDONLY; `advice` (a POSIX_FADV_*, or -1) is given once
  // per descriptor.
  FileSet(const Layout& layout, int flags, int advice = -1);

  // An open descriptor of segment `file`, good until it is unpinned. Throws Error when the file is
  // gone, or is not the one that was opened first.
  int pin(std::uint32_t file);
  void unpin(std::uint32_t file);

  // Whether a file can be pinned now without having more open than this set's share.
  bool has_room_for(std::uint32_t file) const {
    return slots_[file].pins > 0 || pinned_ < most_open_;
  }

  // Files pinned before this, by a run that may have failed, are no longer of interest.
  void forget_used();
  // Throws Error (kFormat) if a file pinned since then is not what it was, or was not when it was
  // closed to make room.
  void verify_used();
  // The same for one file, if it is open.
  void verify(std::uint32_t file);

  std::size_t count() const { return slots_.size(); }
  std::uint64_t size(std::uint32_t file) const { return layout_.segments[file].identity.size; }
  std::uint64_t device(std::uint32_t file) const { return layout_.segments[file].identity.device; }
  const std::string& path(std::uint32_t file) const { return layout_.segments[file].path; }

 private:
  struct Slot {
    Fd fd;
    int pins = 0;
    bool used = false;  // since the last forget_used or verify_used
    std::uint64_t last_use = 0;
  };
  bool close_oldest();

  const Layout& layout_;
  const int flags_, advice_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> used_;
  std::exception_ptr closed_changed_;  // a used file was found changed when it was closed
  std::size_t open_ = 0, pinned_ = 0, most_open_;
  std::uint64_t clock_ = 0;
};

// A pin that lets go by itself.
class Pin {
 public:
  Pin(FileSet& files, std::uint32_t file) : files_(files), file_(file), fd_(files.pin(file)) {}
  ~Pin() { files_.unpin(file_); }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  int fd() const { return fd_; }

 private:
  FileSet& files_;
  const std::uint32_t file_;
  const int fd_;
};

// Opens the file of a segment with other flags: the file that was opened first, also after its name
// was deleted or given to another, if a descriptor was kept; else what the path names now. The
// caller checks it with require_unchanged. Throws Error (kSystem).
Fd open_again(const Segment& segment, int flags);
// Throws Error (kFormat) when a file is not what it was at open: another file, another size, or
// written to, as far as mtime and ctime tell.
void require_unchanged(int fd, const Segment& segment);
// Whether a file is what it was, by the descriptor that is kept from open: no lock is needed for
// it. False: there is none, or it says something else. Then look more closely, as with
// FileSet::verify.
bool surely_unchanged(const Segment& segment);
// A read ended early: the file has become shorter.
[[noreturn]] void throw_truncated(const Segment& segment, std::uint64_t offset);

}  // namespace evenkeel
