// Activity that something happens, for a few microseconds: whether it is worth a closer look.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/fd.h"

namespace evenkeel {

// Counts of whole processes. What grew in the mappings since an earlier reading is at most what
// was read from disk or, for holes and for pages that were cached already, what was newly mapped.
struct Activity {
  std::uint64_t major_faults = 0;
  std::uint64_t faults = 0;      // major and minor
  std::uint64_t read_bytes = 0;  // from the disk, readahead included
  std::uint64_t mapped = 0;      // bytes of files in the resident set, tmpfs included
};

inline std::uint64_t growth(std::uint64_t before, std::uint64_t after) {
  return after > before ? after - before : 0;
}
// The most that page cache and resident pages can have grown by between two readings.
inline std::uint64_t growth(const Activity& before, const Activity& after) {
  const std::uint64_t read = growth(before.read_bytes, after.read_bytes);
  const std::uint64_t mapped = growth(before.mapped, after.mapped);
  return read > mapped ? read : mapped;
}

// Third number of /proc/PID/statm, in pages.
std::optional<std::uint64_t> parse_statm_shared(std::string_view statm);

// One thread at a time.
class ActivitySource {
 public:
  virtual ~ActivitySource() = default;
  virtual Activity read() = 0;
};

// Of this process. Of no use after fork.
class OwnActivity : public ActivitySource {
 public:
  OwnActivity();
  Activity read() override;

 private:
  Fd statm_;
};

}  // namespace evenkeel
