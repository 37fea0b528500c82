// Arrays on disk, far larger than memory, read under a budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/budget.h"
#include "evenkeel/compiler.h"
#include "evenkeel/dtype.h"
#include "evenkeel/error.h"
#include "evenkeel/order.h"

#pragma GCC visibility push(default)

namespace evenkeel {

enum class EngineKind : std::uint8_t {
  kAuto,
  kMap,
  kRemap,
  kAdvise,
  kRead,
  kDirect,
  kFill,
  kRemote,
  kDecode
};

// "auto", "map", "remap", "advise", "read", "direct", "fill", "remote", "decode". Throws kInvalid
// and lists these for others.
EngineKind parse_engine(std::string_view name);
std::string_view engine_name(EngineKind kind);

// What reading does to the page cache, the kernel's memory for files.
enum class PageCache : std::uint8_t {
  // Nothing stays there, and what stays there for a moment counts against the budget.
  kSpare,
  // Everything stays there. For machines whose free memory should be used: the kernel keeps what
  // fits and evicts it when others need the memory. The budget covers the library's own memory
  // alone. Data that fits free memory and is read all over is read ahead in order.
  kFill,
};
PageCache parse_page_cache(std::string_view name);  // "spare", "fill"; throws kInvalid for others
std::string_view page_cache_name(PageCache page_cache);

// The engine at work and the reason for it: a fallback is never silent.
struct EngineReport {
  EngineKind asked = EngineKind::kAuto;
  EngineKind chosen = EngineKind::kAuto;
  std::string how;  // "direct: O_DIRECT, io_uring, 128 in flight, registered files and buffers"
  std::string why;  // "data of 10 GiB does not fit the budget of 64 MiB"
};

struct ArrayOptions {
  // Bytes this array may occupy. Default: an eighth of the memory available. See budget.h.
  Budget budget = {};
  // How bytes come from the disk. kAuto is right for nearly everyone; the others are there to
  // compare, and kMap is the only one that does not keep to the budget.
  EngineKind engine = EngineKind::kAuto;
  // kFill takes engine kAuto, and is then read by kFill.
  PageCache page_cache = PageCache::kSpare;

  // What the file cannot say itself. Setting dtype says: raw binary, without a header; without it
  // the file's magic decides. With dtype set and shape empty, the array is one axis as long as the
  // file allows. A first axis of -1 is worked out from the file's size. `offset` is where the first
  // element begins, in bytes; `big_endian` is how the raw file stores numbers.
  // For a file with an NPY header: dtype alone, of the size of its elements, renames them and keeps
  // the header's layout (bfloat16, which NPY stores as 'V2', is opened so); dtype with an offset
  // reads raw bytes past the header; anything else that is told is refused.
  std::optional<DType> dtype = {};
  std::vector<std::int64_t> shape = {};
  std::uint64_t offset = 0;
  bool big_endian = false;

  // Which array of a file that holds several: a column of an Arrow table, a member of an .npz file,
  // an image of a FITS file. May be left empty where there is one. Lists of different lengths are
  // two arrays, "NAME.values" and "NAME.offsets", for `Loader::ragged`.
  std::string name = {};

  // The most bytes of the budget that may hold rows that were read, for when they are asked for
  // again. Default: all that the budget leaves; it gives way when something else needs the memory.
  // 0: no cache. Where nothing is read twice, none is used. Data that fits the budget is mapped and
  // needs none; with an engine other than kAuto there is one only if it is asked for here.
  std::optional<std::uint64_t> cache = {};

  // For URLs: a folder for what was fetched and how much it may hold, as in "/nvme/ek:200GiB". All
  // processes that name the folder share it. Empty: nothing is kept on disk.
  std::string disk_cache = {};

  // See the array as one axis of elements, in the order in which they are stored.
  bool flatten = false;

  // Requests whose gap is at most this many bytes become one; default: what the engine finds
  // cheaper. 0 turns merging off.
  std::optional<std::uint64_t> merge_gap = {};
};

// What an array has read since it was opened, also through its chunks and loaders. Plain counters:
// fit for a metrics exporter (metrics.h is one).
struct ArrayStats {
  std::uint64_t cache_hits = 0;  // blocks that were in the cache
  std::uint64_t cache_misses =
      0;                          // blocks that were looked for and not there; none while it is off
  std::uint64_t cache_bytes = 0;  // of the budget, that the cache holds now
  std::uint64_t bytes_from_cache = 0;
  std::uint64_t bytes_from_page_cache = 0;
  std::uint64_t bytes_from_disk = 0;  // alignment and gaps that were read through included
  std::uint64_t requests = 0;         // sent to the disk
  std::uint64_t in_flight = 0;        // of these, not back yet
  std::uint64_t wait_ns = 0;          // threads waited for the disk or a server, in sum
  // Of objects on servers. `requests` and `in_flight` are then requests to the server.
  std::uint64_t bytes_from_network = 0;     // gaps, repeats and second requests included
  std::uint64_t retries = 0;                // requests that were made again after a failure
  std::uint64_t hedges = 0;                 // second requests for bytes that were late
  std::uint64_t bytes_from_disk_cache = 0;  // whole blocks of ArrayOptions::disk_cache
  // Copied out of, or shown in, files that are mapped: because they fit the budget, or by kMap.
  // Whether the disk was read for it, the kernel knows.
  std::uint64_t bytes_from_mapping = 0;

  ArrayStats& operator+=(const ArrayStats& other);
};

// Rows as T, row-major, in memory that belongs to someone else.
template <class T>
class Rows {
 public:
  Rows(const T* data, std::size_t rows, std::size_t columns)
      : data_(data), rows_(rows), columns_(columns) {}
  std::size_t size() const { return rows_; }
  std::size_t columns() const { return columns_; }
  const T* data() const { return data_; }
  std::span<const T> operator[](std::size_t row) const {
    return {data_ + row * columns_, columns_};
  }
  std::span<const T> flat() const { return {data_, rows_ * columns_}; }

 private:
  const T* data_;
  std::size_t rows_, columns_;
};

// Some rows of an array in memory. A view: valid until the iterator it came from moves on.
class Chunk {
 public:
  std::size_t size() const { return rows_; }                   // rows in this chunk
  std::uint64_t position() const { return position_; }         // of its first row in the order
  std::span<const std::byte> bytes() const { return bytes_; }  // row-major, machine byte order
  // The array's row number of row i of this chunk.
  std::uint64_t index(std::size_t i) const {
    return indices_.empty() ? first_row_ + i : indices_[i];
  }
  // Throws Error (kInvalid) when T is not the array's dtype.
  template <class T>
  Rows<T> rows() const {
    require(DType::of<T>(), alignof(T));
    return {reinterpret_cast<const T*>(bytes_.data()), rows_, row_bytes_ / sizeof(T)};
  }

 private:
  friend class Chunks;
  void require(DType wanted, std::size_t alignment) const;

  std::span<const std::byte> bytes_;
  std::span<const std::uint64_t> indices_;
  std::uint64_t first_row_ = 0, position_ = 0;
  std::size_t rows_ = 0, row_bytes_ = 0;
  DType dtype_;
};

// The rows of an array, chunk after chunk: an input range. The next chunks are read on a thread of
// the library's own while the current one is used; their buffers are reserved from the array's
// budget when the range is made. Where the budget holds one chunk only, chunks are read when asked
// for. One thread at a time; not to be used in a child of fork, which makes its own. It keeps what
// it needs of the array. Moves, does not copy; a move ends its iterators, and what was moved from
// may only be destroyed or assigned to.
class Chunks {
 public:
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Chunk;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.UndefReturn): not of an ended iterator
    const Chunk& operator*() const { return chunks_->current_; }
    const Chunk* operator->() const { return &chunks_->current_; }
    Iterator& operator++() {
      if (!chunks_->advance()) chunks_ = nullptr;
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return !it.chunks_; }

   private:
    friend class Chunks;
    explicit Iterator(Chunks* chunks) : chunks_(chunks) {}
    Chunks* chunks_ = nullptr;
  };

  Chunks(Chunks&&) noexcept;
  Chunks& operator=(Chunks&&) noexcept;
  ~Chunks();

  Iterator begin() { return advance() ? Iterator(this) : Iterator(); }
  std::default_sentinel_t end() const { return {}; }

  std::uint64_t size() const;      // chunks in all; the last may be short
  void seek(std::uint64_t chunk);  // the next to come is number `chunk`; O(1)
  int buffers() const;             // chunks held in memory at once: 1 means no reading ahead

  struct Impl;

 private:
  friend class Array;
  friend struct Internals;  // src/array/internal.h
  explicit Chunks(std::unique_ptr<Impl> impl);
  bool advance();
  std::unique_ptr<Impl> impl_;
  Chunk current_;
};

// An array in one file or in several, one after the other along the first axis. Nothing is read at
// open but headers; nothing is ever written. All calls but `close` and moves may come from several
// threads at once. After `fork` a child may go on using it: it reads through descriptors and a ring
// of its own. The budget covers the library's buffers and whatever its reads leave in the page
// cache; memory that the caller hands in (`out`) is the caller's. A file that is changed or
// truncated while open is an error at the next read, not wrong data, as far as its size, mtime and
// ctime show it. One that is deleted or replaced is read as it was: an array of up to 8 files keeps
// them open. With more files it may be an error that names the file. A call that fails leaves the
// array as it was. Pages that others brought into the cache stay there; kRemap and kAdvise drop
// those of a request that was cached in part.
class Array {
 public:
  // A path, a pattern with * ? [] whose matches are taken in sorted order, or a folder that Hugging
  // Face `datasets` saved.
  static Array open(const std::string& path_or_glob, const ArrayOptions& options = {});
  static Array open(const std::vector<std::string>& paths, const ArrayOptions& options = {});

  Array(Array&&) noexcept;
  Array& operator=(Array&&) noexcept;
  ~Array();

  const std::vector<std::uint64_t>& shape() const;
  std::uint64_t rows() const;       // shape()[0]; 1 for an array without axes
  std::uint64_t row_bytes() const;  // bytes of one row in memory
  std::uint64_t bytes() const { return rows() * row_bytes(); }
  DType dtype() const;
  const std::string& format() const;  // "npy", "raw", "arrow", "npz", "fits", "nifti"
  const std::vector<std::string>& paths() const;
  const Budget& budget() const;
  EngineReport engine() const;
  ArrayStats stats() const;  // cheap, from any thread

  // Rows first, first+1, ... of `count` rows into `out`, which must hold count * row_bytes().
  void read(std::uint64_t first, std::uint64_t count, std::span<std::byte> out) const;
  // Row indices[i] becomes row i of `out`. Repeats and any order are fine.
  void gather(std::span<const std::uint64_t> indices, std::span<std::byte> out) const;
  // `count` rows from each start: crop i of `out` holds rows starts[i] .. starts[i]+count-1.
  void crops(std::span<const std::uint64_t> starts, std::uint64_t count,
             std::span<std::byte> out) const;

  // The same into memory of T; throws Error (kInvalid) when T is not the array's dtype.
  template <class T>
  void read(std::uint64_t first, std::uint64_t count, std::span<T> out) const {
    require(DType::of<T>());
    read(first, count, std::as_writable_bytes(out));
  }
  template <class T>
  void gather(std::span<const std::uint64_t> indices, std::span<T> out) const {
    require(DType::of<T>());
    gather(indices, std::as_writable_bytes(out));
  }
  template <class T>
  void crops(std::span<const std::uint64_t> starts, std::uint64_t count, std::span<T> out) const {
    require(DType::of<T>());
    crops(starts, count, std::as_writable_bytes(out));
  }

  // All rows in an order, `rows_per_chunk` at a time.
  Chunks chunks(std::uint64_t rows_per_chunk, Order order = sequential()) const;

  // Gives everything back. Later calls throw Error (kClosed); closing twice is fine.
  void close();

  struct Impl;

 private:
  friend struct Internals;  // src/array/internal.h
  explicit Array(std::shared_ptr<Impl> impl);
  Impl& impl() const;
  void require(DType wanted) const;
  std::shared_ptr<Impl> impl_;
};

}  // namespace evenkeel

#pragma GCC visibility pop
