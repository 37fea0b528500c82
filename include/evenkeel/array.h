// Arrays on disk that are far larger than memory, read within a budget.
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

// "auto", "map", "remap", "advise", "read", "direct", "fill", "remote", "decode". For any other
// name it throws kInvalid and lists these.
EngineKind parse_engine(std::string_view name);
std::string_view engine_name(EngineKind kind);

// What reading does to the page cache, the kernel's memory for files.
enum class PageCache : std::uint8_t {
  // Nothing stays there. What is there for a moment counts against the budget.
  kSpare,
  // Everything stays there. For machines whose free memory should be used: the kernel keeps what
  // fits and evicts it when others need the memory. The budget then covers only the library's own
  // memory. If the data fits in free memory and is read all over, it is also read ahead in order.
  kFill,
};
PageCache parse_page_cache(std::string_view name);  // "spare", "fill"; throws kInvalid for others
std::string_view page_cache_name(PageCache page_cache);

// The engine in use and why it was chosen. A fallback is never silent.
struct EngineReport {
  EngineKind asked = EngineKind::kAuto;
  EngineKind chosen = EngineKind::kAuto;
  std::string how;  // "direct: O_DIRECT, io_uring, 128 in flight, registered files and buffers"
  std::string why;  // "data of 10 GiB does not fit the budget of 64 MiB"
};

struct ArrayOptions {
  // Bytes this array may occupy. Default: an eighth of the available memory. See budget.h.
  Budget budget = {};
  // How bytes are read from the disk. kAuto is right for nearly everyone; the others are for
  // comparison. kMap and kFill do not keep to the budget.
  EngineKind engine = EngineKind::kAuto;
  // PageCache::kFill requires the engine kAuto, which then becomes EngineKind::kFill.
  PageCache page_cache = PageCache::kSpare;

  // For files that do not describe themselves. If dtype is set, the file is raw binary without a
  // header; otherwise its magic decides. With dtype set and shape empty, the array has one axis, as
  // long as the file allows. A first axis of -1 is computed from the size of the file. `offset` is
  // where the first element begins, in bytes. `big_endian` is the byte order of the raw file.
  // For a file with an NPY header: dtype alone, of the same element size, replaces the type and
  // keeps the layout of the header (this opens bfloat16, which NPY stores as 'V2'). dtype with an
  // offset reads raw bytes after the header. Any other combination is an error.
  std::optional<DType> dtype = {};
  std::vector<std::int64_t> shape = {};
  std::uint64_t offset = 0;
  bool big_endian = false;

  // Which array of a file that holds several: a column of an Arrow table, a member of an .npz file,
  // an image of a FITS file. May be empty if there is only one. Lists of different lengths are two
  // arrays, "NAME.values" and "NAME.offsets", for LoaderField::ragged.
  std::string name = {};

  // The limit of the cache of rows, in bytes of the budget. Default: all that the budget leaves;
  // the cache is freed when something else needs the memory. 0: no cache. If nothing is read twice,
  // nothing is cached. Data that fits the budget is mapped and needs no cache. With an engine other
  // than kAuto, there is a cache only if this is set.
  std::optional<std::uint64_t> cache = {};

  // For URLs: a folder that caches what was fetched, and its limit, as in "/nvme/ek:200GiB". All
  // processes that use the folder share it. Empty: nothing is kept on disk.
  std::string disk_cache = {};

  // Views the array as one axis of elements, in the order in which they are stored.
  bool flatten = false;

  // Requests with a gap of at most this many bytes between them are merged. Default: chosen by the
  // engine. 0 turns merging off.
  std::optional<std::uint64_t> merge_gap = {};
};

// What an array has read since it was opened, including its chunks and loaders. These are plain
// counters, suitable for a metrics exporter (metrics.h is one). The engines kRemap, kAdvise and
// kRead cannot tell the disk from the page cache: they count neither requests nor bytes. kAuto uses
// kRead where the filesystem does not support direct reads; see Array::engine.
struct ArrayStats {
  std::uint64_t cache_hits = 0;    // blocks that were in the cache
  std::uint64_t cache_misses = 0;  // blocks that were not; not counted while the cache is off
  std::uint64_t cache_bytes = 0;   // bytes of the budget that the cache holds now
  std::uint64_t bytes_from_cache = 0;
  std::uint64_t bytes_from_page_cache = 0;
  std::uint64_t bytes_from_disk = 0;  // including alignment and gaps
  std::uint64_t requests = 0;         // sent to the disk
  std::uint64_t in_flight = 0;        // requests that have not completed yet
  std::uint64_t wait_ns = 0;          // time that threads waited for the disk or a server, in total
  // For objects on servers. `requests` and `in_flight` then count requests to the server.
  std::uint64_t bytes_from_network = 0;     // including gaps, retries and hedges
  std::uint64_t retries = 0;                // requests that were repeated after a failure
  std::uint64_t hedges = 0;                 // second requests for bytes that were late
  std::uint64_t bytes_from_disk_cache = 0;  // whole blocks of ArrayOptions::disk_cache
  // Copied from, or viewed in, mapped files: files that fit the budget, or engine kMap. Only the
  // kernel knows whether the disk was read for it.
  std::uint64_t bytes_from_mapping = 0;

  ArrayStats& operator+=(const ArrayStats& other);
};

// A view of rows of T, row-major. It does not own the memory.
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

// Some rows of an array in memory. A view, valid until its iterator advances or `seek` is called.
class Chunk {
 public:
  std::size_t size() const { return rows_; }                   // rows in this chunk
  std::uint64_t position() const { return position_; }         // of its first row in the order
  std::span<const std::byte> bytes() const { return bytes_; }  // row-major, machine byte order
  // The array's row number of row i of this chunk.
  std::uint64_t index(std::size_t i) const {
    return indices_.empty() ? first_row_ + i : indices_[i];
  }
  // Throws Error (kInvalid) if T is not the array's dtype.
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

// The rows of an array, chunk by chunk: an input range. A thread of the library reads the next
// chunks while the current one is used. Their buffers are reserved from the array's budget when the
// range is made. If the budget holds only one chunk, each chunk is read when it is requested. Use
// it from one thread at a time. Do not use it in a child of fork; the child can make its own. It
// keeps what it needs of the array. `begin` continues after the last chunk that was handed out, so
// a second loop needs `seek(0)`. Movable, not copyable; a move invalidates its iterators, and a
// moved-from object may only be destroyed or assigned to.
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

  std::uint64_t size() const;      // number of chunks; the last may be short
  void seek(std::uint64_t chunk);  // continues with chunk number `chunk`; O(1)
  int buffers() const;             // chunks in memory at once: 1 means no reading ahead

  struct Impl;

 private:
  friend class Array;
  friend struct Internals;  // src/array/internal.h
  explicit Chunks(std::unique_ptr<Impl> impl);
  bool advance();
  std::unique_ptr<Impl> impl_;
  Chunk current_;
};

// An array in one file or in several, concatenated along the first axis. Opening reads only
// headers. The files are never written. All calls except `close` and moves may be made from several
// threads at once. After `fork` a child may continue to use the array: it reads through its own
// descriptors and ring. The budget covers the library's buffers and the pages that its reads leave
// in the page cache. It does not cover memory that the caller passes in (`out`). If a file is
// changed or truncated while it is open, the next read fails instead of returning wrong data, as
// far as size, mtime and ctime show the change, or the ETag of an object on a server. A file that
// is deleted or replaced is read as it was: an array of up to 8 files keeps them open. With more
// files, reading it may throw an error that names the file. A call that fails leaves the array as
// it was. Pages that other programs brought into the page cache stay there if the kernel reports
// them (cachestat, Linux 6.5, for files that the user owns or may write to). Otherwise kRemap,
// kAdvise and kRead may drop the pages of every request. References that calls return are valid
// until `close`. Movable, not copyable; a moved-from array is closed.
class Array {
 public:
  // A path, a pattern with * ? [] whose matches are taken in sorted order, a folder that Hugging
  // Face `datasets` saved, or a URL: https://, http://, s3:// or gs:// (docs/remote.md).
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
  // Cheap; may be called from any thread. A child of fork counts from the fork on.
  ArrayStats stats() const;

  // Reads rows first .. first+count-1 into `out`, which must hold count * row_bytes().
  void read(std::uint64_t first, std::uint64_t count, std::span<std::byte> out) const;
  // Row indices[i] becomes row i of `out`. Indices may repeat and come in any order.
  void gather(std::span<const std::uint64_t> indices, std::span<std::byte> out) const;
  // Reads `count` rows from each start: crop i of `out` holds rows starts[i] .. starts[i]+count-1.
  void crops(std::span<const std::uint64_t> starts, std::uint64_t count,
             std::span<std::byte> out) const;

  // The same for memory of T. Throws Error (kInvalid) if T is not the array's dtype.
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

  // Closes the files and frees all memory. Later calls throw Error (kClosed); closing twice is
  // fine.
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
