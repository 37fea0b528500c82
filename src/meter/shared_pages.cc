#include "meter/shared_pages.h"

#include <algorithm>

namespace evenkeel {

void ResidentPages::set_resident(std::uint64_t bytes) {
  resident_ = bytes;
  shared_ = std::min(shared_, bytes);
  own_ = std::min(own_, bytes - shared_);
}

// A page that k processes map counts 1/k in the PSS of each: resident - pss = shared * (1 - 1/k). k
// is at most the number of processes, which gives a lower bound for the shared bytes.
void ResidentPages::set_walked(std::uint64_t resident, std::uint64_t pss, std::size_t processes) {
  resident_ = resident;
  const std::uint64_t elsewhere = resident_ - std::min(pss, resident_);
  shared_ = std::min(resident_, elsewhere / (processes - 1) * processes);
  own_ = resident_ - shared_;
}

std::uint64_t distinct_bytes(std::span<const ResidentPages> processes, std::uint64_t shared_once,
                             Growth growth) {
  std::uint64_t own = 0, shared = 0, grown = 0, most_grown = 0, largest = 0;
  for (const ResidentPages& pages : processes) {
    own += pages.own();
    shared += pages.shared();
    grown += pages.grown();
    most_grown = std::max(most_grown, pages.grown());
    largest = std::max(largest, pages.resident());
  }
  const std::uint64_t sum =
      own + std::min(shared, shared_once) + (growth == Growth::kOwn ? grown : most_grown);
  return std::max(sum, largest);  // no process maps a page twice
}

}  // namespace evenkeel
