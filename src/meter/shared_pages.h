// Counts resident pages once, even if several processes of a tree map them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace evenkeel {

// Resident bytes of one kind (anonymous, file, shmem) of one process. `resident` is known from
// every sample. How much of it is shared is known only as of the last walk over all pages (PSS).
// What `resident` exceeds own + shared by was added since that walk.
class ResidentPages {
 public:
  // A process that no walk has seen yet. It was forked, so its pages count as shared, up to the
  // size of its parent.
  explicit ResidentPages(std::uint64_t resident = 0, std::uint64_t of_parent = UINT64_MAX)
      : resident_(resident), shared_(std::min(resident, of_parent)) {}

  // If `bytes` is smaller than before, pages added since the walk are taken to be gone first, then
  // own pages, then shared ones.
  void set_resident(std::uint64_t bytes);
  // Sets what a walk has found, with `processes` (2 or more) in the tree.
  void set_walked(std::uint64_t resident, std::uint64_t pss, std::size_t processes);

  std::uint64_t resident() const { return resident_; }
  std::uint64_t own() const { return own_; }
  std::uint64_t shared() const { return shared_; }
  std::uint64_t grown() const { return resident_ - own_ - shared_; }

 private:
  std::uint64_t resident_;
  std::uint64_t own_ = 0;  // pages that no other process of the tree maps
  std::uint64_t shared_;   // pages that others of the tree map, too
};

// Whether two processes can both have grown by the same pages. Anonymous pages become shared only
// by fork, and all pages of a forked child count as shared when it is first seen.
enum class Growth { kOwn, kMayBeShared };

// One kind of memory of all processes of a tree, with no page counted twice. `shared_once`: bytes
// that the shared pages of all processes occupied at the last walk. The result is a lower bound: if
// processes may have grown by the same pages, only the largest growth counts.
std::uint64_t distinct_bytes(std::span<const ResidentPages> processes, std::uint64_t shared_once,
                             Growth growth);

}  // namespace evenkeel
