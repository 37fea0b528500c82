// The mappings of a process, from /proc/PID/maps.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace evenkeel {

struct AddressRange {
  std::uint64_t begin = 0, end = 0;
  bool operator==(const AddressRange&) const = default;
};

struct Vma {
  AddressRange range;
  std::uint64_t offset = 0;             // in the file
  std::uint64_t device = 0, inode = 0;  // both 0: anonymous memory
  bool shared = false, writable = false, executable = false;
  bool operator==(const Vma&) const = default;
};

struct MapsLine {
  Vma vma;
  std::string_view path;  // as in the line: "\012" is a newline or a real "\012"; may be empty
  // False for anonymous memory, [heap] and the like.
  bool has_file() const { return vma.inode != 0 && path.starts_with('/'); }
};

// Parses a line of /proc/PID/maps. Empty if it is malformed.
std::optional<MapsLine> parse_maps_line(std::string_view line);

// Replaces each \012 by a newline.
std::string unescape_newlines(std::string_view path);

// Looks up mappings of a process. Thread-safe. A child of fork must not use it.
class Maps {
 public:
  explicit Maps(pid_t pid = 0);  // 0: the calling process
  // Mappings in the range, by address. Empty if there are none or the kernel refuses.
  std::vector<Vma> in(AddressRange range) const;

 private:
  std::optional<std::vector<Vma>> by_query(AddressRange range) const;
  std::vector<Vma> by_text(AddressRange range) const;
  const pid_t pid_;
  Fd maps_;
};

// Whether `wanted` and its continuations cover the range without a gap. A continuation is of the
// same file, at the offset that follows from its address, and shared or private like `wanted`.
bool covers(const std::vector<Vma>& found, AddressRange range, const Vma& wanted);

}  // namespace evenkeel
