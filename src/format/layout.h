// What is in the files. Every format reader produces a Layout.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/dtype.h"

namespace evenkeel {

// What fstat reported when the file was opened. A reader that later finds something else fails.
struct FileIdentity {
  std::uint64_t device = 0, inode = 0, size = 0;
  std::int64_t mtime_ns = 0;
  // If a file is rewritten and its mtime is set back, only ctime differs. But ctime also changes
  // when the file is linked, unlinked or renamed, or when its mode or owner changes, so these are
  // stored, too.
  std::int64_t ctime_ns = 0;
  std::uint64_t links = 0;
  std::uint32_t mode = 0, owner = 0, group = 0;

  FileIdentity() = default;
  explicit FileIdentity(const struct stat& status);
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

class KeptFile;
class RemoteObject;
struct ChunkGrid;

// One file's part of an array: rows first_row .. first_row+rows-1, whose bytes begin at
// data_offset.
struct Segment {
  std::string path;
  FileIdentity identity;
  std::uint64_t data_offset = 0;
  std::uint64_t first_row = 0;
  std::uint64_t rows = 0;
  // A descriptor from open, so that the file can be opened again after its name was deleted or
  // given to another file. Empty for arrays of many files (kMostKeptFiles), and if the process
  // keeps very many (KeptFile).
  std::shared_ptr<const KeptFile> kept = {};
  // For an object on a server: `path` is its URL, and only the size in `identity` has a meaning.
  std::shared_ptr<const RemoteObject> remote = {};
};

// Rows first_row .. first_row+rows-1, which are contiguous in a segment's file and begin at
// `offset`.
struct Stretch {
  std::uint64_t first_row = 0, rows = 0, offset = 0;
  std::uint32_t segment = 0;
};

// One batch of list offsets, for tables whose offsets start again in each batch and count from the
// first value of that batch.
struct OffsetBatch {
  std::uint64_t first_list = 0, lists = 0;    // rows of the column
  std::uint64_t first_offset = 0;             // where the lists + 1 offsets begin in the array
  std::uint64_t first_value = 0, values = 0;  // where its values begin in the array of values
};

// Invariants that a format guarantees and every reader relies on: row_bytes >= 1; sums and products
// do not overflow; every segment's data lies inside its file; segments with no rows are left out.
// If there are stretches, they are in row order, cover all rows, are not empty and lie inside their
// files. The array is then in C order, and Segment::data_offset has no meaning.
struct Layout {
  std::string format;  // "npy", "raw"; for tokens see token_layout.h
  DType dtype;
  bool swapped = false;  // stored in the opposite byte order of this machine
  bool fortran = false;  // first axis runs fastest, within each segment
  std::vector<std::uint64_t> shape;
  std::uint64_t rows = 0;       // shape[0], or 1 when there are no axes
  std::uint64_t row_bytes = 0;  // bytes of one row: element size times the other axes
  std::vector<Segment> segments;
  // Where rows lie, if a file holds them in several places. Empty: the rows of a segment are
  // contiguous.
  std::vector<Stretch> stretches = {};
  // For an array of offsets. Empty: the offsets are one sequence that never decreases.
  std::vector<OffsetBatch> offset_batches = {};
  std::vector<std::string> paths;  // all files, also those without rows
  std::string disk_cache = {};     // for objects on servers: FOLDER:SIZE; empty: none
  // For an array in compressed chunks (format/chunk_grid.h). Its only segment is not a file;
  // offsets count decoded bytes.
  std::shared_ptr<const ChunkGrid> chunks = {};

  std::uint64_t bytes() const { return rows * row_bytes; }
  // For an array of offsets: the number of lists they describe.
  std::uint64_t lists() const {
    if (offset_batches.empty()) return rows > 0 ? rows - 1 : 0;
    return offset_batches.back().first_list + offset_batches.back().lists;
  }
  // The same elements as an array of one axis, in storage order.
  Layout flattened() const;
  // If there are no stretches, adds one for each segment.
  void spell_out_stretches();
};

// What the caller specified about the files; see ArrayOptions. If dtype is given, the file is raw
// binary, unless it has an NPY header:
// - dtype alone, of the size of the header's elements, replaces the header's dtype. This is how
//   bfloat16, which NPY stores as 'V2', is read. big_endian is then the elements' byte order.
// - dtype of another size, or with a shape, is an error, because the header's bytes are not data.
// - dtype with an offset reads the file as raw binary.
struct FormatOptions {
  std::optional<DType> dtype = {};
  std::vector<std::int64_t> shape = {};
  std::uint64_t offset = 0;
  bool big_endian = false;
  // Which array of a container: a column, a member, an image. See format/container.h.
  std::string name = {};
};

// Reads only headers. Throws Error (kFormat, kInvalid, kSystem).
Layout read_layout(const std::vector<std::string>& paths, const FormatOptions& options);

// Stores fetched data in a cache on disk, FOLDER:SIZE. An empty string changes nothing. Throws
// Error (kInvalid) if `cache` cannot be parsed or if the data is in local files.
void use_disk_cache(Layout& layout, const std::string& cache);

// The files that match a path or a pattern with * ? [], sorted. A path that exists is never treated
// as a pattern. Throws Error (kSystem, ENOENT) if nothing matches.
std::vector<std::string> expand_paths(const std::string& path_or_glob);

}  // namespace evenkeel
