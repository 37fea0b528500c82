#include "format/chunk_grid.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "format/part.h"

namespace evenkeel {
namespace {

constexpr std::size_t kMostGridAxes = 32;
constexpr std::uint64_t kMostChunkBytes = std::uint64_t{1} << 47;  // of a chunk, or of its rows
constexpr std::uint64_t kMostShardIndex = std::uint64_t{1} << 24;  // chunks

Error bad_grid(const ChunkGrid& grid, const std::string& problem) {
  return Error(ErrorKind::kFormat, "open", problem).in(grid.folder);
}

// Empty on overflow.
std::optional<std::uint64_t> product(const std::vector<std::uint64_t>& lengths,
                                     std::uint64_t times) {
  std::optional<std::uint64_t> all = times;
  for (const std::uint64_t length : lengths) {
    if (all) all = checked_mul(*all, length);
  }
  return all;
}

void require_axes(const ChunkGrid& grid) {
  const std::size_t axes = grid.shape.size();
  const auto is_zero = [](std::uint64_t length) { return length == 0; };
  if (axes == 0 || axes > kMostGridAxes || grid.chunk.size() != axes ||
      (!grid.shard.empty() && grid.shard.size() != axes) ||
      std::ranges::any_of(grid.shape, is_zero) || std::ranges::any_of(grid.chunk, is_zero) ||
      std::ranges::any_of(grid.shard, is_zero)) {
    throw bad_grid(grid, "chunks of shape " + shape_text(grid.chunk) + " in an array of shape " +
                             shape_text(grid.shape));
  }
  std::vector<std::uint32_t> order = grid.order;
  std::ranges::sort(order);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order.size() != axes || order[i] != i) {
      throw bad_grid(grid, "the axis order of its chunks is not a permutation of " +
                               std::to_string(axes) + " axes");
    }
  }
}

}  // namespace

bool ChunkGrid::whole_rows() const {
  return std::equal(chunk.begin() + 1, chunk.end(), shape.begin() + 1) &&
         std::ranges::is_sorted(order);
}

std::string ChunkGrid::file_of(const std::vector<std::uint64_t>& at) const {
  std::string name = folder + "/" + prefix;
  for (std::size_t axis = 0; axis < at.size(); ++axis) {
    const std::uint64_t each = shard.empty() ? 1 : shard[axis] / chunk[axis];
    if (axis > 0 || !prefix.empty()) name += separator;
    name += std::to_string(at[axis] / each);
  }
  return name;
}

std::uint64_t ChunkGrid::place_in_shard(const std::vector<std::uint64_t>& at) const {
  std::uint64_t place = 0;
  for (std::size_t axis = 0; axis < at.size(); ++axis) {
    const std::uint64_t each = shard[axis] / chunk[axis];
    place = place * each + at[axis] % each;
  }
  return place;
}

Layout layout_of_chunks(const std::string& format, ChunkGrid grid, DType dtype, bool big_endian) {
  require_axes(grid);
  const auto size = measure(grid.shape, dtype.size);
  const auto chunk_bytes = product(grid.chunk, dtype.size);
  const auto block_bytes =
      size ? checked_mul(size->row_bytes, grid.chunk[0]) : std::optional<std::uint64_t>();
  if (!size || size->row_bytes == 0 || chunk_bytes.value_or(UINT64_MAX) > kMostChunkBytes ||
      block_bytes.value_or(UINT64_MAX) > kMostChunkBytes) {
    throw bad_grid(grid, "chunks of shape " + shape_text(grid.chunk) + " in an array of shape " +
                             shape_text(grid.shape) + " of " + dtype.name() +
                             " have more bytes than any file");
  }
  if (grid.fill.size() != dtype.size) {
    throw bad_grid(
        grid, "a fill value of " + std::to_string(grid.fill.size()) + " bytes for " + dtype.name());
  }
  grid.element = dtype.size;
  grid.row_bytes = size->row_bytes;
  grid.chunk_bytes = *chunk_bytes;
  grid.block_bytes = *block_bytes;
  grid.blocks = divide_up(grid.shape[0], grid.chunk[0]);
  grid.chunks_in_block = 1;
  for (std::size_t axis = 1; axis < grid.shape.size(); ++axis) {
    grid.chunks_in_block *= divide_up(grid.shape[axis], grid.chunk[axis]);
  }
  for (std::size_t axis = 0; axis < grid.shard.size(); ++axis) {
    const std::uint64_t each = grid.shard[axis] / grid.chunk[axis];
    if (each * grid.chunk[axis] != grid.shard[axis]) {
      throw bad_grid(grid, "shards of shape " + shape_text(grid.shard) +
                               " are not multiples of chunks of shape " + shape_text(grid.chunk));
    }
    const auto all = checked_mul(grid.chunks_in_shard, each);
    if (!all || *all > kMostShardIndex) {
      throw bad_grid(grid, "a shard of shape " + shape_text(grid.shard) + " has more than " +
                               with_commas(kMostShardIndex) + " chunks");
    }
    grid.chunks_in_shard = *all;
  }
  Layout layout;
  layout.format = format;
  layout.dtype = dtype;
  layout.swapped = needs_swap(dtype, big_endian);
  layout.shape = grid.shape;
  layout.rows = size->rows;
  layout.row_bytes = size->row_bytes;
  Segment segment;
  segment.path = grid.folder;
  segment.identity.size = size->rows * size->row_bytes;
  segment.rows = size->rows;
  layout.segments.push_back(std::move(segment));
  layout.paths = {grid.folder};
  layout.chunks = std::make_shared<const ChunkGrid>(std::move(grid));
  return layout;
}

}  // namespace evenkeel
