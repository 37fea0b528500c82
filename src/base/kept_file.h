// Files that stay what they were when their names are deleted or given to others.
#pragma once

#include <memory>

#include "base/fd.h"

namespace evenkeel {

// A descriptor that an array keeps from open to close. Nothing is read from it; it is there to open
// the same file again (open_again). A process keeps at most an eighth of the descriptors that it
// may have, and never more than 1,024.
class KeptFile {
 public:
  // Empty when the process keeps as many as it may.
  static std::shared_ptr<const KeptFile> keep(std::shared_ptr<const Fd> fd);
  ~KeptFile();
  KeptFile(const KeptFile&) = delete;
  KeptFile& operator=(const KeptFile&) = delete;

  // Opens the file behind the descriptor with other flags, whatever its name says now. Empty where
  // that does not work: without /proc, or when someone closed the descriptor.
  Fd open_again(int flags) const;
  int fd() const { return fd_->get(); }  // to ask about the file, not to read it

 private:
  explicit KeptFile(std::shared_ptr<const Fd> fd);
  const std::shared_ptr<const Fd> fd_;
};

}  // namespace evenkeel
