#include "prepare/byte_reader.h"

#include <algorithm>
#include <cstring>

#include "array/internal.h"
#include "base/fd.h"
#include "format/source.h"

namespace evenkeel {

FileIdentity identify_file(const std::string& path) {
  return identify(open_readable(path).get(), path);
}

Array open_bytes(const std::string& path, const FileIdentity& identity,
                 const ArrayOptions& options) {
  Layout layout;
  layout.format = "raw";
  layout.dtype = DType::of<std::uint8_t>();
  layout.rows = identity.size;
  layout.row_bytes = 1;
  layout.shape = {layout.rows};
  layout.paths = {path};
  if (layout.rows > 0) {
    layout.segments = {{.path = path, .identity = identity, .rows = layout.rows}};
  }
  return Internals::make(std::move(layout), options);
}

ByteReader::ByteReader(Array array, std::uint64_t chunk_bytes, Budget budget)
    : array_(std::move(array)),
      rows_per_chunk_(std::max<std::uint64_t>(1, chunk_bytes / array_.row_bytes())),
      budget_(std::move(budget)) {
  seek(0);
}

void ByteReader::seek(std::uint64_t offset) {
  const std::uint64_t chunk_bytes = rows_per_chunk_ * array_.row_bytes();
  // For a short way forward, use what was read ahead.
  if (next_ && offset >= offset_ && offset - offset_ < 4 * chunk_bytes) {
    while (offset_ < offset && (!chunk_.empty() || refill())) {
      const std::uint64_t now = std::min<std::uint64_t>(chunk_.size(), offset - offset_);
      chunk_ = chunk_.subspan(now);
      offset_ += now;
    }
    if (offset_ == offset) return;
  }
  chunk_ = {};
  next_.reset();
  offset_ = offset;
  if (array_.rows() == 0) return;
  if (!chunks_) chunks_.emplace(array_.chunks(rows_per_chunk_));
  chunks_->seek(std::min(offset / chunk_bytes, chunks_->size()));
  skip_ = offset % chunk_bytes;
}

bool ByteReader::refill() {
  if (offset_ >= size()) return false;
  if (!next_) {
    next_ = chunks_->begin();
  } else {
    ++*next_;
  }
  if (*next_ == std::default_sentinel) return false;
  chunk_ = (**next_).bytes().subspan(skip_);
  skip_ = 0;
  return !chunk_.empty();
}

void ByteReader::carry(std::span<const std::byte> part) {
  const std::uint64_t needed = carried_.size() + part.size();
  if (needed > carried_.capacity()) {
    const std::uint64_t room = std::max<std::uint64_t>(needed, 2 * carried_.capacity());
    carried_share_.release();
    carried_share_ = budget_.reserve(room + carried_.size(), "an item that is longer than a chunk");
    carried_.reserve(room);
  }
  carried_.insert(carried_.end(), part.begin(), part.end());
}

std::span<const std::byte> ByteReader::take(std::uint64_t count) {
  if (chunk_.empty()) refill();
  if (chunk_.size() >= count) {
    const auto taken = chunk_.first(count);
    chunk_ = chunk_.subspan(count);
    offset_ += count;
    return taken;
  }
  carried_.clear();
  while (carried_.size() < count && (!chunk_.empty() || refill())) {
    const auto part = chunk_.first(std::min<std::uint64_t>(chunk_.size(), count - carried_.size()));
    carry(part);
    chunk_ = chunk_.subspan(part.size());
    offset_ += part.size();
  }
  return carried_;
}

std::span<const std::byte> ByteReader::take_line() {
  if (chunk_.empty() && !refill()) return {};
  carried_.clear();
  for (;;) {
    const void* newline = std::memchr(chunk_.data(), '\n', chunk_.size());
    const std::uint64_t length =
        newline ? static_cast<const std::byte*>(newline) - chunk_.data() + 1 : chunk_.size();
    const auto part = chunk_.first(length);
    chunk_ = chunk_.subspan(length);
    offset_ += length;
    if (newline && carried_.empty()) return part;
    carry(part);
    if (newline || !refill()) return carried_;
  }
}

}  // namespace evenkeel
