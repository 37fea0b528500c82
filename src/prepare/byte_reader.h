// Reads the bytes of an array from its beginning to its end, in ranges of any length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/array.h"
#include "format/layout.h"

namespace evenkeel {

// The identity of a file that can be read at any offset. Throws Error for folders, pipes and
// devices.
FileIdentity identify_file(const std::string& path);

// Opens a file of any format as bytes. Reading fails if the file no longer has this identity.
Array open_bytes(const std::string& path, const FileIdentity& identity,
                 const ArrayOptions& options);

// Chunks are read ahead within the array's budget. A range that crosses the end of a chunk is
// copied to memory that is reserved from `budget`. Not thread-safe.
class ByteReader {
 public:
  ByteReader(Array array, std::uint64_t chunk_bytes, Budget budget);

  std::uint64_t size() const { return array_.bytes(); }
  std::uint64_t offset() const { return offset_; }
  void seek(std::uint64_t offset);
  // The next `count` bytes, which must exist. Valid until the next call.
  std::span<const std::byte> take(std::uint64_t count);
  // The bytes up to and including the next newline, or to the end. Valid until the next call.
  std::span<const std::byte> take_line();

 private:
  bool refill();  // reads the next chunk_; false at the end
  void carry(std::span<const std::byte> part);

  Array array_;
  const std::uint64_t rows_per_chunk_;
  const Budget budget_;
  std::optional<Chunks> chunks_;
  std::optional<Chunks::Iterator> next_;
  std::span<const std::byte> chunk_;  // what is left of it
  std::uint64_t offset_ = 0;
  std::uint64_t skip_ = 0;  // bytes to skip in the next chunk, after seek
  std::vector<std::byte> carried_;
  Reservation carried_share_;
};

}  // namespace evenkeel
