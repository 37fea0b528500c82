// A mapping of a guarded file, in this process or in another.
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>

#include "guard/access.h"
#include "meter/proc_maps.h"

namespace evenkeel {

class GuardedMapping {
 public:
  GuardedMapping(std::uint64_t key, AddressRange range, std::uint64_t file_offset)
      : key_(key), range_(range), file_offset_(file_offset) {}
  virtual ~GuardedMapping() = default;
  GuardedMapping(const GuardedMapping&) = delete;
  GuardedMapping& operator=(const GuardedMapping&) = delete;

  std::uint64_t key() const { return key_; }  // unique among the guarded mappings
  AddressRange range() const { return range_; }
  std::uint64_t length() const { return range_.end - range_.begin; }
  std::uint64_t file_offset() const { return file_offset_; }
  virtual std::string name() const;  // for messages
  // A descriptor of the file that stays open as long as the mapping is guarded, or -1.
  virtual int descriptor() const { return -1; }
  // The file, if it cannot be opened. Such a mapping writes and drops the file's pages itself when
  // it lets go of them.
  struct FileId {
    std::uint64_t device, inode;
  };
  virtual std::optional<FileId> file_id() const { return std::nullopt; }

  // Whether the range still is this mapping. Check before the calls below, so that another mapping
  // in its place is left alone. Without the check no contents are lost either.
  virtual bool still_there() const = 0;
  // Takes pages of the range out of the resident set without losing contents. Returns 0 or an
  // errno.
  virtual int let_go(AddressRange range) = 0;
  // The same for many ranges and mappings at once: first one start for each range, then one finish
  // for each mapping. Other processes then release them at the same time.
  virtual int start_let_go(AddressRange range) { return let_go(range); }
  virtual int finish_let_go() { return 0; }
  virtual int advise(AddressRange range, int advice) = 0;
  // A fault in the range fetches kLimitedReadahead from now on. Returns 0 or an errno. advise()
  // with MADV_NOHUGEPAGE and then another advice ends it.
  static constexpr std::uint64_t kLimitedReadahead = std::uint64_t{2} << 20;
  virtual int limit_readahead(AddressRange /*range*/) { return ENOSYS; }
  // Adds the resident pages of the range to the sample. Returns false if the kernel refuses.
  virtual bool count_resident(AddressRange range, AccessSample& sample) const = 0;

 private:
  const std::uint64_t key_;
  const AddressRange range_;
  const std::uint64_t file_offset_;
};

}  // namespace evenkeel
