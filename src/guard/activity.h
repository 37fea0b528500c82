// Cheap counters of a process's activity. They show whether counting cached pages is worthwhile.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/fd.h"

namespace evenkeel {

// Sums over whole processes.
struct Activity {
  std::uint64_t major_faults = 0;
  std::uint64_t faults = 0;      // major and minor
  std::uint64_t read_bytes = 0;  // from the disk, readahead included
  std::uint64_t mapped = 0;      // resident bytes of file mappings, tmpfs included
};

inline std::uint64_t growth(std::uint64_t before, std::uint64_t after) {
  return after > before ? after - before : 0;
}

// Bytes read from the disk, or newly mapped, between two readings.
inline std::uint64_t growth(const Activity& before, const Activity& after) {
  const std::uint64_t read = growth(before.read_bytes, after.read_bytes);
  const std::uint64_t mapped = growth(before.mapped, after.mapped);
  return read > mapped ? read : mapped;
}

// An upper bound for the growth of page cache and resident file pages between two readings. Pages
// over holes of a file come without a read, and pages that a private mapping copies do not count as
// mapped: only faults show them. A major fault brings in up to `readahead` bytes, any other fault
// one page.
std::uint64_t most_growth(const Activity& before, const Activity& after, std::uint64_t readahead);

// Returns the third number of /proc/PID/statm, in pages.
std::optional<std::uint64_t> parse_statm_shared(std::string_view statm);

// Not thread-safe unless a subclass says so.
class ActivitySource {
 public:
  virtual ~ActivitySource() = default;
  virtual Activity read() = 0;
};

// The activity of this process. All instances share one descriptor of /proc/self/statm.
// Thread-safe.
class OwnActivity : public ActivitySource {
 public:
  Activity read() override;
};

}  // namespace evenkeel
