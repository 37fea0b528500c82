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
  std::string_view
      path;  // as in the line: a newline is \012, and so is a real "\012"; may be empty
  // False for anonymous memory, [heap] and the like.
  bool has_file() const { return vma.inode != 0 && path.starts_with('/'); }
};

// A line of /proc/PID/maps; empty when it is malformed.
std::optional<MapsLine> parse_maps_line(std::string_view line);

// A newline for each \012.
std::string unescape_newlines(std::string_view path);

// Looks up mappings of a process. Thread-safe. Not for use in a child of fork.
class Maps {
 public:
  explicit Maps(pid_t pid = 0);  // 0 is this one
  // Mappings in the range, by address. Empty when there are none, or the kernel does not tell.
  std::vector<Vma> in(AddressRange range) const;

 private:
  std::optional<std::vector<Vma>> by_query(AddressRange range) const;
  std::vector<Vma> by_text(AddressRange range) const;
  const pid_t pid_;
  Fd maps_;
};

// Whether the range is covered without a gap by `wanted` and its continuations: the same file, at
// the offsets that follow from the address, shared or private as it was.
bool covers(const std::vector<Vma>& found, AddressRange range, const Vma& wanted);

}  // namespace evenkeel
