// A guarded mapping of this process.
#pragma once

#include "evenkeel/guard.h"
#include "guard/guarded_mapping.h"

namespace evenkeel {

// Not thread-safe.
class OwnMapping : public GuardedMapping {
 public:
  // Throws the same errors as Guard::add. `maps` and `pages` must outlive the mapping.
  OwnMapping(const GuardMapping& mapping, const GuardOptions& options, const Maps& maps,
             PageMap& pages);

  int descriptor() const override { return fd_; }
  bool still_there() const override { return covers(maps_.in(range()), range(), vma_); }
  int let_go(AddressRange range) override;
  int advise(AddressRange range, int advice) override;
  bool count_resident(AddressRange range, AccessSample& sample) const override {
    return pages_.count(range, sample);
  }

 private:
  void refuse_what_cannot_work(int fd, bool keep_cache) const;

  const Maps& maps_;
  PageMap& pages_;
  const bool promised_;  // GuardMapping::removed_before_unmap
  const int fd_;         // -1 unless GuardMapping::closed_after_remove
  Vma vma_;              // the area at the beginning of the range
};

}  // namespace evenkeel
