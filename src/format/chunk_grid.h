// Arrays that are cut into chunks, each compressed by itself: what a reader of them must know.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/layout.h"

namespace evenkeel {

enum class Compression : std::uint8_t { kNone, kZstd, kBlosc, kZlib };  // kZlib: gzip as well

// A regular grid of chunks. A chunk is a file, or a part of one (a shard). Chunks at the edges of
// the array are stored whole. The file of a chunk at (3, 0) is FOLDER/3.0, FOLDER/c/3/0 or the
// like; one that is not there stands for the fill value.
struct ChunkGrid {
  std::string folder;
  std::string prefix;     // of a file's name; may be empty
  std::string separator;  // "." or "/"
  std::vector<std::uint64_t> shape, chunk;
  std::vector<std::uint64_t> shard;  // empty: a file is one chunk
  bool index_at_end = true;          // of a shard
  bool index_checked = false;        // the index has a CRC-32C
  // The axes as a chunk stores them, slowest first; empty: as they are.
  std::vector<std::uint32_t> order;
  Compression compression = Compression::kNone;
  bool checked = false;                // each chunk ends with a CRC-32C
  std::string fill;                    // the bytes of one element, as stored
  std::vector<std::string> libraries;  // where decoders may be, besides the system's own

  // Set by layout_of_chunks. A block is all chunks of the same rows; the array is one block after
  // the other.
  std::uint64_t element = 0;  // bytes of one
  std::uint64_t row_bytes = 0;
  std::uint64_t chunk_bytes = 0;  // of a decoded chunk
  std::uint64_t block_bytes = 0;  // of chunk[0] rows
  std::uint64_t blocks = 0;
  std::uint64_t chunks_in_block = 0;
  std::uint64_t chunks_in_shard = 1;

  // Whether a decoded chunk is a block as it is.
  bool whole_rows() const;
  // The file of the chunk (or of the shard with it) at `at`, in chunks.
  std::string file_of(const std::vector<std::uint64_t>& at) const;
  // Its place in the index of its shard.
  std::uint64_t place_in_shard(const std::vector<std::uint64_t>& at) const;
};

// Checks everything: the numbers may come from anywhere. Throws Error (kInvalid, kFormat). The
// layout has one segment, the array as it would be in one file of decoded rows.
Layout layout_of_chunks(const std::string& format, ChunkGrid grid, DType dtype, bool big_endian);

}  // namespace evenkeel
