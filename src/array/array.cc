#include "evenkeel/array.h"

#include <algorithm>

#include "array/chunks.h"
#include "array/impl.h"
#include "base/checked.h"
#include "remote/opening.h"

namespace evenkeel {
namespace {

Layout layout_for(const std::vector<std::string>& paths, const ArrayOptions& options) {
  Layout layout = read_layout(
      paths, {options.dtype, options.shape, options.offset, options.big_endian, options.name});
  use_disk_cache(layout, options.disk_cache);
  return options.flatten ? layout.flattened() : layout;
}

void check_room(const char* operation, std::uint64_t rows, std::uint64_t row_bytes,
                std::size_t room) {
  const auto needed = checked_mul(rows, row_bytes);
  if (needed && *needed <= room) return;
  throw Error(ErrorKind::kInvalid, operation,
              with_commas(rows) + " rows of " + with_commas(row_bytes) + " bytes need " +
                  (needed ? with_commas(*needed) : "more than 2^64") + " bytes; `out` has " +
                  with_commas(room));
}

}  // namespace

ArrayStats& ArrayStats::operator+=(const ArrayStats& other) {
  cache_hits += other.cache_hits;
  cache_misses += other.cache_misses;
  cache_bytes += other.cache_bytes;
  bytes_from_cache += other.bytes_from_cache;
  bytes_from_page_cache += other.bytes_from_page_cache;
  bytes_from_disk += other.bytes_from_disk;
  requests += other.requests;
  in_flight += other.in_flight;
  wait_ns += other.wait_ns;
  bytes_from_network += other.bytes_from_network;
  retries += other.retries;
  hedges += other.hedges;
  bytes_from_disk_cache += other.bytes_from_disk_cache;
  bytes_from_mapping += other.bytes_from_mapping;
  return *this;
}

Array::Array(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Array::Array(Array&&) noexcept = default;
Array& Array::operator=(Array&&) noexcept = default;
Array::~Array() = default;

Array Array::open(const std::string& path_or_glob, const ArrayOptions& options) {
  const RemoteOpening opening;  // what is learnt about URLs is used by both steps
  return open(expand_paths(path_or_glob), options);
}

Array Array::open(const std::vector<std::string>& paths, const ArrayOptions& options) {
  if (paths.empty()) throw Error(ErrorKind::kInvalid, "open", "no file was named");
  const RemoteOpening opening(paths);  // looks up all URLs at once
  return Array(std::make_shared<Impl>(layout_for(paths, options), options));
}

Array::Impl& Array::impl() const {
  if (!impl_) {
    throw Error(ErrorKind::kClosed, "array", "used after close").hint("open the array again");
  }
  return *impl_;
}

const std::vector<std::uint64_t>& Array::shape() const { return impl().layout.shape; }
std::uint64_t Array::rows() const { return impl().layout.rows; }
std::uint64_t Array::row_bytes() const { return impl().layout.row_bytes; }
DType Array::dtype() const { return impl().layout.dtype; }
const std::string& Array::format() const { return impl().layout.format; }
const std::vector<std::string>& Array::paths() const { return impl().layout.paths; }
const Budget& Array::budget() const { return impl().budget; }
ArrayStats Array::stats() const { return impl().stats(); }
EngineReport Array::engine() const { return impl().report(); }

void Array::read(std::uint64_t first, std::uint64_t count, std::span<std::byte> out) const {
  Impl& array = impl();
  array.check_rows("read", first, count);
  check_room("read", count, array.layout.row_bytes, out.size());
  array.crops(std::span(&first, 1), count, out.data());
}

void Array::gather(std::span<const std::uint64_t> indices, std::span<std::byte> out) const {
  crops(indices, 1, out);
}

void Array::crops(std::span<const std::uint64_t> starts, std::uint64_t count,
                  std::span<std::byte> out) const {
  Impl& array = impl();
  const char* operation = count == 1 ? "gather" : "crops";
  for (const std::uint64_t start : starts) array.check_rows(operation, start, count);
  const auto rows = checked_mul(starts.size(), count);
  check_room(operation, rows.value_or(UINT64_MAX), array.layout.row_bytes, out.size());
  array.crops(starts, count, out.data());
}

Chunks Array::chunks(std::uint64_t rows_per_chunk, Order order) const {
  impl();
  return Chunks(std::make_unique<Chunks::Impl>(impl_, rows_per_chunk, order));
}

void Array::close() { impl_.reset(); }

void Array::require(DType wanted) const {
  const DType own = dtype();
  if (wanted == own || (own.kind == DTypeKind::kRecord && wanted.size == own.size)) return;
  throw Error(ErrorKind::kInvalid, "array",
              "holds " + own.name() + ", requested as " + wanted.name())
      .in(paths().front());
}

}  // namespace evenkeel
