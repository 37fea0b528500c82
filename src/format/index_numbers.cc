#include "format/index_numbers.h"

#include "base/checked.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {

void IndexWindows::refill(std::size_t size) {
  constexpr std::size_t kWindow = 64_KiB;  // holds whole numbers of 4 and of 8 bytes
  next_ -= window_.size() - at_;           // a number that the window cut
  window_ = source_.read(next_, kWindow);
  at_ = 0;
  if (window_.size() < size) {
    throw Error(ErrorKind::kFormat, "open", "the index became shorter while it was read")
        .in(source_.path)
        .at(next_ + window_.size())
        .hint("wait until it is written, then open it again");
  }
  // Whole pages only go; the page that the next window shares stays for it.
  const std::uint64_t begin = round_down(next_, sys::page_size());
  next_ += window_.size();
  (void)sys::fadvise(source_.fd->get(), begin, next_ - begin, POSIX_FADV_DONTNEED);
}

}  // namespace evenkeel
