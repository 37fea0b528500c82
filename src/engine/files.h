// The descriptors of an array's files. A file is opened when it is first needed and checked to be
// the same file as when the array was opened. The number of open descriptors is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "base/fd.h"
#include "format/layout.h"

namespace evenkeel {

// Not thread-safe. `layout` must outlive it.
class FileSet {
 public:
  // `flags` go to open(2) in addition to O_RDONLY; `advice` (a POSIX_FADV_*, or -1) is given once
  // per descriptor.
  FileSet(const Layout& layout, int flags, int advice = -1);

  // An open descriptor of segment `file`, valid until it is unpinned. Throws Error if the file is
  // gone, or is not the file that was opened first.
  int pin(std::uint32_t file);
  void unpin(std::uint32_t file);

  // Whether a file can be pinned now without exceeding the limit of open descriptors.
  bool has_room_for(std::uint32_t file) const {
    return slots_[file].pins > 0 || pinned_ < most_open_;
  }

  // Forgets which files were pinned so far, by a run that may have failed.
  void forget_used();
  // Throws Error (kFormat) if a file pinned since then has changed. A file that was closed to make
  // room was checked when it was closed.
  void verify_used();
  // The same for one file, if it is open or was closed to make room.
  void verify(std::uint32_t file);

  std::size_t count() const { return slots_.size(); }
  std::uint64_t size(std::uint32_t file) const { return layout_.segments[file].identity.size; }
  std::uint64_t device(std::uint32_t file) const { return layout_.segments[file].identity.device; }
  const std::string& path(std::uint32_t file) const { return layout_.segments[file].path; }

 private:
  struct Slot {
    Fd fd;
    int pins = 0;
    bool used = false;     // since the last forget_used or verify_used
    bool changed = false;  // found when it was closed, after it was used
    std::uint64_t last_use = 0;
  };
  bool close_oldest();

  const Layout& layout_;
  const int flags_, advice_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> used_;
  std::exception_ptr closed_changed_;  // the first file that was found changed when it was closed
  std::size_t open_ = 0, pinned_ = 0, most_open_;
  std::uint64_t clock_ = 0;
};

// Pins a file for its lifetime.
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

// Opens the file of a segment with other flags. If a descriptor was kept, this is the file that was
// opened first, even after it was deleted or renamed; otherwise it is the file that has the path
// now. The caller checks it with require_unchanged. Throws Error (kSystem).
Fd open_again(const Segment& segment, int flags);
// Throws Error (kFormat) if this is another file than the one that was opened first, if its size
// has changed, or if it was written to according to mtime and ctime.
void require_unchanged(int fd, const Segment& segment);
// Whether the descriptor that was kept shows that the file has not changed. Needs no lock. False if
// no descriptor was kept or something differs; then check with FileSet::verify.
bool surely_unchanged(const Segment& segment);
// For a read that returned fewer bytes than the file had: the file has become shorter.
[[noreturn]] void throw_truncated(const Segment& segment, std::uint64_t offset);

}  // namespace evenkeel
