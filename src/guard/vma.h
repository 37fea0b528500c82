// What is mapped where in a process, as the kernel tells it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
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

// From a line of /proc/PID/maps; empty when it is none.
std::optional<Vma> parse_vma(std::string_view line);

// Mappings of a process, looked at again and again. Thread-safe; of no use after fork.
class Maps {
 public:
  explicit Maps(pid_t pid = 0);  // 0 is this one
  // Those that lie in the range, by address. Empty when there are none, or the kernel will not say.
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
