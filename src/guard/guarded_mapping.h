// A mapping of a watched file, in this process or in another.
#pragma once

#include <cstdint>
#include <string>

#include "guard/access.h"
#include "guard/vma.h"

namespace evenkeel {

class GuardedMapping {
 public:
  GuardedMapping(std::uint64_t key, AddressRange range, std::uint64_t file_offset)
      : key_(key), range_(range), file_offset_(file_offset) {}
  virtual ~GuardedMapping() = default;
  GuardedMapping(const GuardedMapping&) = delete;
  GuardedMapping& operator=(const GuardedMapping&) = delete;

  std::uint64_t key() const { return key_; }  // one of its kind among all that are held
  AddressRange range() const { return range_; }
  std::uint64_t length() const { return range_.end - range_.begin; }
  std::uint64_t file_offset() const { return file_offset_; }
  virtual std::string name() const;  // for messages

  // Whether the range still is this mapping. To be asked before the calls below, so that what has
  // taken its place is left alone. Were it not asked, nothing would be lost.
  virtual bool still_there() const = 0;
  // Pages of the range leave the resident set, in a way that cannot lose anything. 0 or an errno.
  virtual int let_go(AddressRange range) = 0;
  // The same for many ranges and mappings at once: first one start for each range, then one finish
  // for each mapping. Other processes then work at the same time.
  virtual int start_let_go(AddressRange range) { return let_go(range); }
  virtual int finish_let_go() { return 0; }
  virtual int advise(AddressRange range, int advice) = 0;
  // Adds to the sample what of the range is resident; false when the kernel will not say.
  virtual bool count_resident(AddressRange range, AccessSample& sample) const = 0;

 private:
  const std::uint64_t key_;
  const AddressRange range_;
  const std::uint64_t file_offset_;
};

}  // namespace evenkeel
