#include "format/index_numbers.h"

#include <utility>

#include "base/checked.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {

void IndexWindows::refill(std::size_t size) {
  constexpr std::size_t kWindow = 64_KiB;  // a multiple of 4 and 8, the sizes of the numbers
  next_ -= window_.size() - at_;           // begin with a number that the last window split
  window_ = source_.read(next_, kWindow);
  at_ = 0;
  if (window_.size() < size) {
    throw Error(ErrorKind::kFormat, "open", "the index became shorter while it was read")
        .in(source_.path)
        .at(next_ + window_.size())
        .hint("wait until it is complete, then open it again");
  }
  const std::uint64_t begin = std::exchange(next_, next_ + window_.size());
  if (!source_.fd) return;  // an object on a server
  // Only whole pages are dropped. The page shared with the next window stays cached.
  const std::uint64_t page = round_down(begin, sys::page_size());
  (void)sys::fadvise(source_.fd->get(), page, next_ - page, POSIX_FADV_DONTNEED);
}

}  // namespace evenkeel
