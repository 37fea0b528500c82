// What is in the files: the answer that every format gives.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/dtype.h"

namespace evenkeel {

// What fstat said of a file when it was opened. A reader that finds something else refuses to go
// on.
struct FileIdentity {
  std::uint64_t device = 0, inode = 0, size = 0;
  std::int64_t mtime_ns = 0;
  // A rewrite whose mtime was set back shows in ctime alone. But ctime also moves when the file is
  // linked, unlinked or renamed, or when its mode or owner changes, so these are kept, too.
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
  // The file as it was opened, so that it can be opened again after its name was deleted or given
  // to another file. Empty for arrays of many files (kMostKeptFiles), and
  // where the process keeps very many (KeptFile).
  std::shared_ptr<const KeptFile> kept = {};
  // An object on a server: `path` is its URL, and of `identity` only the size means something.
  std::shared_ptr<const RemoteObject> remote = {};
};

// Rows first_row .. first_row+rows-1, which lie one after the other from `offset` of a segment's
// file on.
struct Stretch {
  std::uint64_t first_row = 0, rows = 0, offset = 0;
  std::uint32_t segment = 0;
};

// Offsets of lists that begin anew in each batch of a table, and count from the batch's own values.
struct OffsetBatch {
  std::uint64_t first_list = 0, lists = 0;    // rows of the column
  std::uint64_t first_offset = 0;             // where the lists + 1 offsets begin in the array
  std::uint64_t first_value = 0, values = 0;  // where its values begin in theirs
};

// Invariants that a format guarantees and every reader relies on: row_bytes >= 1; sums and products
// do not overflow; every segment's data lies inside its file; segments with no rows are left out.
// Stretches come in the order of their rows, leave none out, are not empty and lie inside their
// files; then the array is in C order, and Segment::data_offset means nothing.
struct Layout {
  std::string format;  // "npy", "raw"; for tokens see token_layout.h
  DType dtype;
  bool swapped = false;  // stored in the opposite byte order of this machine
  bool fortran = false;  // first axis runs fastest, within each segment
  std::vector<std::uint64_t> shape;
  std::uint64_t rows = 0;       // shape[0], or 1 when there are no axes
  std::uint64_t row_bytes = 0;  // bytes of one row: element size times the other axes
  std::vector<Segment> segments;
  // Where rows lie, if a file holds them in several places. Empty: those of a segment lie together.
  std::vector<Stretch> stretches = {};
  // Of an array of offsets; empty: they are one list of numbers that never decrease.
  std::vector<OffsetBatch> offset_batches = {};
  std::vector<std::string> paths;  // all files, also those without rows
  std::string disk_cache = {};     // of objects on servers: FOLDER:SIZE; empty: none
  // Of an array in compressed chunks (format/chunk_grid.h): its one segment is no file, and the
  // offsets are those of the decoded rows.
  std::shared_ptr<const ChunkGrid> chunks = {};

  std::uint64_t bytes() const { return rows * row_bytes; }
  // Of an array of offsets: how many lists they are of.
  std::uint64_t lists() const {
    if (offset_batches.empty()) return rows > 0 ? rows - 1 : 0;
    return offset_batches.back().first_list + offset_batches.back().lists;
  }
  // The same elements as an array of one axis, in storage order.
  Layout flattened() const;
  // Makes `stretches` say where the rows of every segment lie.
  void spell_out_stretches();
};

// What the caller said about the files; see ArrayOptions. If dtype is given, the file is raw
// binary, unless it has an NPY header:
// - dtype alone, of the size of the header's elements, replaces the header's dtype. This is how
//   bfloat16, which NPY stores as 'V2', is read. big_endian then says how the elements are stored.
// - dtype of another size, or with a shape, is an error, because the header's bytes are not data.
// - dtype with an offset reads the file as raw binary after all.
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

// Keeps what is fetched in a cache on disk, FOLDER:SIZE; an empty text changes nothing. Throws
// Error (kInvalid) where it is none, or where the data lies in files.
void use_disk_cache(Layout& layout, const std::string& cache);

// The files that match a path or a pattern with * ? [], sorted. A path that exists is never taken
// as a pattern. Throws Error (kSystem, ENOENT) if nothing matches.
std::vector<std::string> expand_paths(const std::string& path_or_glob);

}  // namespace evenkeel
