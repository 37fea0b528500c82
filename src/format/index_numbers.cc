#include "format/index_numbers.h"

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
  // Only whole pages are dropped. The page shared with the next window stays cached.
  const std::uint64_t begin = round_down(next_, sys::page_size());
  next_ += window_.size();
  (void)sys::fadvise(source_.fd->get(), begin, next_ - begin, POSIX_FADV_DONTNEED);
}

}  // namespace evenkeel
