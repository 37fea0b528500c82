// Arrays that are stored as separately compressed chunks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/layout.h"

namespace evenkeel {

enum class Compression : std::uint8_t { kNone, kZstd, kBlosc, kZlib };  // kZlib: gzip as well

// A regular grid of chunks. A chunk is a file, or a part of one (a shard). Chunks at the edges of
// the array are stored with their full size. The file of a chunk at (3, 0) is FOLDER/3.0,
// FOLDER/c/3/0 or the like. A chunk without a file consists of the fill value.
struct ChunkGrid {
  std::string folder;
  std::string prefix;     // of file names; may be empty
  std::string separator;  // "." or "/"
  std::vector<std::uint64_t> shape, chunk;
  std::vector<std::uint64_t> shard;  // empty: a file is one chunk
  bool index_at_end = true;          // the index is at the end of a shard
  bool index_checked = false;        // the index has a CRC-32C
  // The order of axes in a stored chunk, slowest first; empty: the order of `shape`.
  std::vector<std::uint32_t> order;
  Compression compression = Compression::kNone;
  bool checked = false;                // each chunk ends with a CRC-32C
  std::string fill;                    // the bytes of one element, as stored
  std::vector<std::string> libraries;  // where to look for decoders besides the system's libraries

  // Set by layout_of_chunks. A block is all chunks of the same rows; the array is a sequence of
  // blocks.
  std::uint64_t element = 0;  // its size in bytes
  std::uint64_t row_bytes = 0;
  std::uint64_t chunk_bytes = 0;  // of a decoded chunk
  std::uint64_t block_bytes = 0;  // of chunk[0] rows
  std::uint64_t blocks = 0;
  std::uint64_t chunks_in_block = 0;
  std::uint64_t chunks_in_shard = 1;

  // Whether a decoded chunk is already a block.
  bool whole_rows() const;
  // The file of the chunk at `at`, counted in chunks, or of the shard that contains it.
  std::string file_of(const std::vector<std::uint64_t>& at) const;
  // The chunk's position in the index of its shard.
  std::uint64_t place_in_shard(const std::vector<std::uint64_t>& at) const;
};

// Makes a layout with one segment: the array as it would be in one file of decoded rows. The
// numbers of the grid are not trusted: all are checked. Throws Error (kInvalid, kFormat).
Layout layout_of_chunks(const std::string& format, ChunkGrid grid, DType dtype, bool big_endian);

}  // namespace evenkeel
