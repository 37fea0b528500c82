// An array that Python holds.
#pragma once

#include <nanobind/ndarray.h>

#include <functional>
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

// After `close`, the array stays alive for calls that are still in it. The GIL guards this class,
// and is released while reading.
class Reader {
 public:
  // `open` is called without the GIL.
  Reader(std::string first_path, const std::function<Array()>& open);

  std::shared_ptr<Array> array() const;  // throws Error (kClosed) after close
  void close() { array_.reset(); }
  bool closed() const { return !array_; }

  // The engine in use. If it is changing, this waits for the disk.
  EngineReport engine() const;

  // A share of the array's budget; see Array::Impl::room_for. Throws Error (kBudget), and what
  // signal handlers raise while it waits.
  Reservation room_for(std::uint64_t bytes, const std::string& what);
  // The same for one read. Waits for other reads, and checks for signals meanwhile.
  Reservation room_for_read(std::uint64_t bytes, const std::string& what);

  // One row as a new ndarray, or a scalar if `shape` is (). For rows that need no reservation.
  nanobind::object row(std::uint64_t index, nanobind::handle shape, nanobind::handle dtype) const;

  void read(std::uint64_t first, std::uint64_t count, const Bytes& out) const;
  void gather(const RowNumbers& rows, const Bytes& out) const;

 private:
  template <class Owner>
  void read_rows(const std::shared_ptr<Array>& array, std::uint64_t first, std::uint64_t count,
                 std::span<std::byte> out, const Owner& owner) const;

  const std::string first_path_;
  std::shared_ptr<Array> array_;
  bool local_ = false;  // all files are on local filesystems
};

}  // namespace evenkeel::python
