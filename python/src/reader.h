// An array as Python holds it.
#pragma once

#include <nanobind/ndarray.h>

#include <memory>
#include <string>
#include <vector>

#include "evenkeel/array.h"

namespace evenkeel::python {

using Bytes =
    nanobind::ndarray<std::uint8_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using RowNumbers = nanobind::ndarray<const std::uint64_t, nanobind::ndim<1>, nanobind::c_contig,
                                     nanobind::device::cpu>;

inline std::span<std::byte> span_of(const Bytes& bytes) {
  return {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()};
}

// An ek::Array that can change its mind about mapping, and outlives `close` for the calls that are
// still in it. The GIL guards it, and is released while reading.
class Reader {
 public:
  Reader(std::vector<std::string> paths, ArrayOptions options);

  std::shared_ptr<Array> array() const;  // throws Error (kClosed) after close
  void close() { array_.reset(); }
  bool closed() const { return !array_; }

  // Memory for results, from the array's own budget. Data that was mapped because it fits gives
  // way. Throws Error (kBudget).
  Reservation room_for(std::uint64_t bytes, const std::string& what);

  void read(std::uint64_t first, std::uint64_t count, const Bytes& out) const;
  void gather(const RowNumbers& rows, const Bytes& out) const;

 private:
  bool mapped_by_choice() const;
  Reservation room_instead_of_mapping(std::uint64_t bytes, const std::string& what);

  const std::vector<std::string> paths_;
  const ArrayOptions options_;
  std::shared_ptr<Array> array_;
  bool local_ = false;  // all files lie on local filesystems
};

}  // namespace evenkeel::python
