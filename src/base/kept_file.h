// Keeps files open, so that they can be read after they are deleted or replaced.
#pragma once

#include <memory>

#include "base/fd.h"

namespace evenkeel {

// A descriptor that an array keeps from open to close. It is not used for reading, only to open the
// same file again (open_again). A process keeps at most an eighth of its descriptor limit, and
// never more than 1,024.
class KeptFile {
 public:
  // Returns nullptr if the process already keeps the maximum number.
  static std::shared_ptr<const KeptFile> keep(std::shared_ptr<const Fd> fd);
  ~KeptFile();
  KeptFile(const KeptFile&) = delete;
  KeptFile& operator=(const KeptFile&) = delete;

  // Opens the same file with other flags, even if its name now refers to another file or to none.
  // Returns an empty Fd if that fails: without /proc, or if other code closed the descriptor.
  Fd open_again(int flags) const;
  int fd() const { return fd_->get(); }  // for fstat and the like, not for reading

 private:
  explicit KeptFile(std::shared_ptr<const Fd> fd);
  const std::shared_ptr<const Fd> fd_;
};

}  // namespace evenkeel
