// Where a keeper learns what other processes map.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "guard/guarded_mapping.h"

namespace evenkeel {

// A file mapping of another process.
struct Seen {
  std::uint64_t key = 0;         // the same for as long as it is there
  std::uint64_t generation = 0;  // another one: the mapping under that key is another
  pid_t pid = 0;
  AddressRange range;
  std::uint64_t offset = 0;  // in the file
  std::uint64_t device = 0, inode = 0;
  std::uint64_t file = 0;  // the source's own number for it
};

class MappingSource {
 public:
  virtual ~MappingSource() = default;

  // Until something may have changed, at most so long; from another thread it can be cut short.
  virtual void wait(std::chrono::nanoseconds most) = 0;
  virtual void interrupt() = 0;
  virtual std::vector<Seen> look() = 0;
  virtual std::string path(const Seen& mapping) const = 0;  // as its process names it
  virtual std::unique_ptr<GuardedMapping> hold(const Seen& mapping) = 0;
  // The file is read here and there: mappings that are still to come are to be advised so.
  virtual void set_random(const Seen& /*mapping*/, bool /*random*/) {}
  // What does not work as wished, a line each.
  virtual std::vector<std::string> notes() const { return {}; }
};

}  // namespace evenkeel
