// What is mapped where in this process, as the kernel tells it.
#pragma once

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
  bool shared = false;
  bool operator==(const Vma&) const = default;
};

// From a line of /proc/PID/maps; empty when it is none.
std::optional<Vma> parse_vma(std::string_view line);

// This process's mappings, looked at again and again. Thread-safe; of no use after fork.
class Maps {
 public:
  Maps();
  // Those that lie in the range, by address. Empty when there are none, or the kernel will not say.
  std::vector<Vma> in(AddressRange range) const;

 private:
  std::optional<std::vector<Vma>> by_query(AddressRange range) const;
  std::vector<Vma> by_text(AddressRange range) const;
  Fd maps_;
};

// Whether the range is covered without a gap by `wanted` and its continuations: the same file, at
// the offsets that follow from the address, shared or private as it was.
bool covers(const std::vector<Vma>& found, AddressRange range, const Vma& wanted);

}  // namespace evenkeel
