#include "engine/chunk_store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/retry_policy.h"
#include "engine/page_cache.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kDirectAlignment = 4096;  // enough for every disk
constexpr std::uint64_t kChecksum = 4;            // bytes of a CRC-32C
constexpr std::uint64_t kAbsent = UINT64_MAX;     // in an index: never written

Error bad_chunk(const std::string& file, const std::string& problem) {
  return Error(ErrorKind::kFormat, "read", problem).in(file);
}

// Verifies the checksum at the end and returns the bytes before it.
std::span<const std::byte> checked_part(std::span<const std::byte> stored, const std::string& what,
                                        const std::string& file) {
  std::uint32_t said = 0;
  if (stored.size() >= kChecksum) {
    const auto bytes = stored.first(stored.size() - kChecksum);
    std::memcpy(&said, bytes.data() + bytes.size(), kChecksum);
    if (crc32c(bytes) == said) return bytes;
  }
  throw bad_chunk(file, what + " of " + with_commas(stored.size()) +
                            " bytes does not match the CRC-32C stored with it")
      .hint("the download or copy may be incomplete");
}

// The shape of a box of elements, and its strides in the source and in the destination.
struct Box {
  std::vector<std::uint64_t> lengths, from, to;  // strides in bytes
  std::uint64_t element;
};

void copy_box(const Box& box, std::size_t axis, std::uint64_t run_axis, std::uint64_t run,
              const std::byte* from, std::byte* to) {
  if (axis == run_axis) {
    std::memcpy(to, from, run);
    return;
  }
  for (std::uint64_t i = 0; i < box.lengths[axis]; ++i) {
    copy_box(box, axis + 1, run_axis, run, from, to);
    from += box.from[axis];
    to += box.to[axis];
  }
}

void copy_box(const Box& box, const std::byte* from, std::byte* to) {
  // The last axes that are contiguous on both sides are copied at once.
  std::size_t axis = box.lengths.size();
  std::uint64_t run = box.element;
  while (axis > 0 && box.from[axis - 1] == run && box.to[axis - 1] == run) {
    run *= box.lengths[--axis];
  }
  copy_box(box, 0, axis, run, from, to);
}

}  // namespace

std::shared_ptr<const ShardIndex> ShardIndexes::find(const std::string& file) {
  const MutexLock lock(mutex_);
  return look_up(file);
}

std::shared_ptr<const ShardIndex> ShardIndexes::look_up(const std::string& file) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->file != file) continue;
    entries_.splice(entries_.begin(), entries_, entry);
    return entries_.front().index;
  }
  return nullptr;
}

std::shared_ptr<const ShardIndex> ShardIndexes::add(const std::string& file,
                                                    std::shared_ptr<const ShardIndex> index) {
  const MutexLock lock(mutex_);
  if (auto known = look_up(file)) return known;
  if (entries_.size() >= most_) entries_.pop_back();
  entries_.push_front({file, index});
  return index;
}

std::uint64_t BlockReader::block_size(const ChunkGrid& grid) {
  return grid.whole_rows() ? grid.block_bytes
                           : std::min(grid.chunk[0], grid.shape[0]) * grid.row_bytes;
}

std::uint64_t BlockReader::index_bytes(const ChunkGrid& grid) {
  return grid.shard.empty() ? 0 : 16 * grid.chunks_in_shard + (grid.index_checked ? kChecksum : 0);
}

// Data that cannot be compressed becomes a little longer.
std::uint64_t BlockReader::most_stored(const ChunkGrid& grid) {
  const std::uint64_t most = grid.chunk_bytes + grid.chunk_bytes / 16 + (64 << 10);
  return std::max(most, index_bytes(grid));
}

std::uint64_t BlockReader::memory(const ChunkGrid& grid) {
  constexpr std::uint64_t kStack = 64 << 10;
  return round_up(most_stored(grid), kDirectAlignment) + 2 * kDirectAlignment + kStack +
         (grid.whole_rows() ? 0 : round_up(grid.chunk_bytes, kDirectAlignment)) +
         Decoder::memory(grid.compression, grid.chunk_bytes);
}

BlockReader::BlockReader(const ChunkGrid& grid, const Budget& budget, ShardIndexes& indexes,
                         Counters& counters)
    : grid_(grid),
      indexes_(indexes),
      counters_(counters),
      decoder_(make_decoder(grid.compression, grid.libraries, budget)),
      stored_(round_up(most_stored(grid), kDirectAlignment) + 2 * kDirectAlignment,
              "compressed chunks"),
      chunk_(grid.whole_rows() ? 0 : grid.chunk_bytes, "a decoded chunk") {}

void BlockReader::read(std::uint64_t block, std::span<std::byte> out) {
  std::vector<std::uint64_t> at(grid_.shape.size(), 0);
  at[0] = block;
  const std::byte* const fill = reinterpret_cast<const std::byte*>(grid_.fill.data());
  for (std::uint64_t i = 0; i < grid_.chunks_in_block; ++i) {
    if (!chunk_) {
      if (!decode(at, out)) {
        for (std::size_t byte = 0; byte < out.size(); byte += grid_.element) {
          std::memcpy(out.data() + byte, fill, grid_.element);
        }
      }
    } else {
      const std::span<std::byte> chunk(chunk_.data(), grid_.chunk_bytes);
      place(at, decode(at, chunk) ? chunk.data() : nullptr, out.data());
    }
    for (std::size_t axis = at.size(); --axis > 0;) {
      if (++at[axis] * grid_.chunk[axis] < grid_.shape[axis]) break;
      at[axis] = 0;
    }
  }
}

void BlockReader::place(const std::vector<std::uint64_t>& at, const std::byte* chunk,
                        std::byte* block) const {
  const std::size_t axes = at.size();
  Box box{std::vector<std::uint64_t>(axes), std::vector<std::uint64_t>(axes),
          std::vector<std::uint64_t>(axes), grid_.element};
  std::uint64_t stored_stride = grid_.element;
  for (std::size_t i = axes; i-- > 0;) {
    const std::size_t axis = grid_.order.empty() ? i : grid_.order[i];
    box.from[axis] = chunk ? stored_stride : 0;  // stride 0 repeats the fill value
    stored_stride *= grid_.chunk[axis];
  }
  std::uint64_t stride = grid_.element;
  for (std::size_t axis = axes; axis-- > 0;) {
    const std::uint64_t first = at[axis] * grid_.chunk[axis];
    box.lengths[axis] = std::min(grid_.chunk[axis], grid_.shape[axis] - first);
    box.to[axis] = stride;
    if (axis > 0) block += first * stride;
    stride *= grid_.shape[axis];
  }
  copy_box(box, chunk ? chunk : reinterpret_cast<const std::byte*>(grid_.fill.data()), block);
}

bool BlockReader::decode(const std::vector<std::uint64_t>& at, std::span<std::byte> out) {
  const std::string name = grid_.file_of(at);
  std::optional<File> file = open(name);
  if (!file) {
    require_absence(name);
    return false;
  }
  std::uint64_t offset = 0, length = file->size;
  std::string what = "the chunk";
  if (!grid_.shard.empty()) {
    const std::shared_ptr<const ShardIndex> index = index_of(*file);
    const std::uint64_t place = grid_.place_in_shard(at);
    offset = (*index)[2 * place];
    length = (*index)[2 * place + 1];
    if (offset == kAbsent && length == kAbsent) return false;
    what = "chunk " + with_commas(place) + " of the shard";
    if (offset > file->size || length > file->size - offset) {
      throw bad_chunk(file->name, what + " has " + with_commas(length) + " bytes from offset " +
                                      with_commas(offset) + "; the file has " +
                                      with_commas(file->size));
    }
  }
  if (length > most_stored(grid_)) {
    throw bad_chunk(file->name, what + " has " + with_commas(length) +
                                    " bytes, too many for a chunk that decodes to " +
                                    with_commas(grid_.chunk_bytes));
  }
  Stored stored = load(*file, offset, length);
  if (grid_.checked) stored = checked_part(stored, what, file->name);
  decoder_->decode(stored, out, file->name + (grid_.shard.empty() ? "" : ", " + what));
  return true;
}

std::shared_ptr<const ShardIndex> BlockReader::index_of(File& file) {
  if (auto index = indexes_.find(file.name)) return index;
  const std::uint64_t length = index_bytes(grid_);
  if (file.size < length) {
    throw bad_chunk(file.name, "the shard has " + with_commas(file.size) +
                                   " bytes, too few for its index of " + with_commas(length));
  }
  Stored stored = load(file, grid_.index_at_end ? file.size - length : 0, length);
  if (grid_.index_checked) stored = checked_part(stored, "the index", file.name);
  auto index = std::make_shared<ShardIndex>(2 * grid_.chunks_in_shard);
  std::memcpy(index->data(), stored.data(), index->size() * sizeof(std::uint64_t));
  return indexes_.add(file.name, std::move(index));
}

void BlockReader::require_absence(const std::string& file) const {
  struct stat status;
  if (sys::lstat(file.c_str(), &status) == 0 && S_ISLNK(status.st_mode)) {
    throw Error::system("read", ENOENT, "the chunk is a link to a file that is not there")
        .in(file)
        .hint("fetch the data first, for example with git annex get");
  }
  for (const char* name : {"/.zarray", "/zarr.json"}) {
    if (sys::lstat((grid_.folder + name).c_str(), &status) == 0) return;
  }
  throw Error::system("read", errno, "the array is gone: there is no .zarray and no zarr.json")
      .in(grid_.folder)
      .hint("it may have been removed or replaced, or its disk unmounted");
}

std::optional<BlockReader::File> BlockReader::open_as(const std::string& name, int flags) {
  File file;
  file.name = name;
  try {
    file.fd = open_readable(name, flags);
  } catch (const Error& error) {
    if (error.code() == ENOENT || error.code() == ENOTDIR) return std::nullopt;
    throw;
  }
  struct stat status;
  if (sys::fstat(file.fd.get(), &status) != 0) throw Error::system("stat", errno).in(name);
  file.size = static_cast<std::uint64_t>(status.st_size);
  file.direct = (flags & O_DIRECT) != 0;
  return file;
}

std::optional<BlockReader::File> BlockReader::open(const std::string& name) {
  std::optional<File> file;
  try {
    file = open_as(name, O_DIRECT);
  } catch (const Error& error) {
    if (error.code() != EINVAL) throw;  // EINVAL: the filesystem does not support O_DIRECT
    return open_as(name, 0);
  }
  if (!file || !is_cached(file->fd.get(), 0, file->size)) return file;
  return open_as(name, 0);  // it is already in the page cache
}

BlockReader::Stored BlockReader::load(File& file, std::uint64_t offset, std::uint64_t length) {
  ++counters_.requests;
  if (file.direct) {
    if (const auto stored = load_aligned(file, offset, length)) return *stored;
    file = open_as(file.name, 0).value_or(std::move(file));
  }
  const Uncached brought_in(file.fd.get(), offset, length);
  const std::span<std::byte> out(stored_.data(), length);
  sys::fadvise(file.fd.get(), 0, 0, POSIX_FADV_RANDOM);
  if (read_upto(file.fd.get(), offset, out, file.name) != length) {
    throw bad_chunk(file.name, "the file became shorter while it was read");
  }
  brought_in.drop(file.fd.get());
  (brought_in.empty() ? counters_.bytes_from_page_cache : counters_.bytes_from_disk) += length;
  return out;
}

// Empty if the filesystem refuses direct reads although it accepted O_DIRECT.
std::optional<BlockReader::Stored> BlockReader::load_aligned(const File& file, std::uint64_t offset,
                                                             std::uint64_t length) {
  const std::uint64_t begin = round_down(offset, kDirectAlignment), before = offset - begin;
  const std::uint64_t wanted = before + length, asked = round_up(wanted, kDirectAlignment);
  std::uint64_t done = 0;
  RetryPolicy retry;
  while (done < wanted) {
    const ssize_t got =
        sys::pread(file.fd.get(), stored_.data() + done, asked - done, begin + done);
    if (got < 0) {
      const int code = errno;
      if (retry.try_again(code)) continue;
      if (code == EINVAL) return std::nullopt;
      throw Error::system("read", code).in(file.name).at(begin + done);
    }
    if (got == 0) throw bad_chunk(file.name, "the file became shorter while it was read");
    done += static_cast<std::uint64_t>(got);
    retry.moved();
  }
  counters_.bytes_from_disk += done;
  return Stored(stored_.data() + before, length);
}

}  // namespace evenkeel
