// Counts resident pages once, though several processes of a tree map them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace evenkeel {

// Resident bytes of one kind (anonymous, file, shmem) of one process. The kernel tells `resident`
// in every sample; how much of it is shared only a walk over all pages tells (PSS), so that is
// known as of the last walk. Whatever `resident` exceeds own + shared has come since.
class ResidentPages {
 public:
  // A process that no walk has seen yet. Its parent forked it, so its pages count as shared, up to
  // what the parent has.
  explicit ResidentPages(std::uint64_t resident = 0, std::uint64_t of_parent = UINT64_MAX)
      : resident_(resident), shared_(std::min(resident, of_parent)) {}

  // Pages that go are first those that came since the walk, then own ones, then shared ones.
  void set_resident(std::uint64_t bytes);
  // A walk found so many bytes resident and of PSS, with `processes` (2 or more) in the tree.
  void set_walked(std::uint64_t resident, std::uint64_t pss, std::size_t processes);

  std::uint64_t resident() const { return resident_; }
  std::uint64_t own() const { return own_; }
  std::uint64_t shared() const { return shared_; }
  std::uint64_t grown() const { return resident_ - own_ - shared_; }

 private:
  std::uint64_t resident_;
  std::uint64_t own_ = 0;  // pages that no other process of the tree maps
  std::uint64_t shared_;   // pages that others map, too
};

// Whether two processes can both have grown by the same pages. Anonymous pages become shared by
// fork alone, and a forked child counts as shared when it is first seen.
enum class Growth { kOwn, kMayBeShared };

// One kind of memory of all processes of a tree, no page counted twice. `shared_once`: what the
// shared pages of all processes occupied at the last walk. Never more than is there for certain:
// where processes may have grown by the same pages, the largest growth counts.
std::uint64_t distinct_bytes(std::span<const ResidentPages> processes, std::uint64_t shared_once,
                             Growth growth);

}  // namespace evenkeel
