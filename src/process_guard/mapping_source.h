// Where a ProcessGuard learns what other processes map.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "guard/guarded_mapping.h"

namespace evenkeel {

// A file mapping of another process.
struct ObservedMapping {
  std::uint64_t key = 0;         // the same as long as the mapping exists
  std::uint64_t generation = 0;  // changes when another mapping has the key
  pid_t pid = 0;
  AddressRange range;
  std::uint64_t offset = 0;  // in the file
  std::uint64_t device = 0, inode = 0;
  std::uint64_t file = 0;                   // the source's own number for the file
  std::optional<std::uint32_t> descriptor;  // that the process mapped the file with
};

// A ProcessGuard calls interrupt(), notes() and set_random() from any thread, the other members
// from one.
class MappingSource {
 public:
  virtual ~MappingSource() = default;

  // Returns when something may have changed, at the latest after `most`. interrupt(), called from
  // another thread, makes it return at once.
  virtual void wait(std::chrono::nanoseconds most) = 0;
  virtual void interrupt() = 0;
  virtual std::vector<ObservedMapping> observe() = 0;
  // Called after the result of observe() was processed: unmapped files are closed by now.
  virtual void acted_upon() {}
  virtual std::string path(const ObservedMapping& mapping) const = 0;  // as its process names it
  // Makes a mapping for the evictor. Without a descriptor of the file the tool cannot write its
  // pages or drop them from the page cache; then the mapping's process must do both.
  virtual std::unique_ptr<GuardedMapping> make_guarded(const ObservedMapping& mapping,
                                                       bool has_descriptor) = 0;
  // Sets whether the file is read at random. Future mappings of it get that advice.
  virtual void set_random(const ObservedMapping& /*mapping*/, bool /*random*/) {}
  // Messages about what cannot be guarded, and why.
  virtual std::vector<std::string> notes() const { return {}; }
};

}  // namespace evenkeel
