// Writing arrays and token files far larger than memory, under a budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/budget.h"
#include "evenkeel/compiler.h"
#include "evenkeel/dtype.h"
#include "evenkeel/error.h"

#pragma GCC visibility push(default)

namespace evenkeel {

// What all writers have in common.
struct WriteOptions {
  // Bytes that the writer may occupy: its buffers (16 MiB at most), and the page cache where the
  // filesystem does not take direct writes. See budget.h.
  Budget budget = {};
  // Writes FILE.xxh3 beside the file, which `evenkeel verify` checks.
  bool checksums = false;
  // Goes on at the last checkpoint of a writer that was killed. Without one, it begins anew.
  bool resume = false;
  // Called every 50 ms of a wait for the disk; what it throws ends the wait, and the writer cannot
  // be used any more.
  std::function<void()> while_waiting = {};
  // About how many bytes will be written; 0: not known. An object on a server has 10,000 parts at
  // most: they are made large enough, and where the budget is too small for that, this shows at
  // once. A fixed shape says it itself.
  std::uint64_t expected_bytes = 0;
};

struct ArrayWriterOptions : WriteOptions {
  DType dtype = DType::of<float>();
  // A first axis of -1 grows with what is appended. With another number, the file has exactly so
  // many rows: room is taken at once, and rows that were never written are zeros.
  std::vector<std::int64_t> shape = {-1};
  // "npy", "raw" (no header), or empty: "npy" for names that end with .npy, else "raw".
  std::string format = {};
  // The element type in the NPY header, as NumPy writes it, where DType has no name for it:
  // "[('x', '<f4'), ('y', '<i8')]". It must have the size of `dtype`.
  std::string descr = {};
};

// An array file that is being written. The file appears under its name only when it is complete,
// with `close`: until then it is NAME.partial, and a crash leaves the old file or none. Data goes
// to the disk by direct writes, several at a time, while the caller makes more; nothing stays in
// the page cache. One thread at a time; not to be used in a child of fork. Moves, does not copy.
// Without `close` the destructor drops the file, but for one that has a checkpoint.
class ArrayWriter {
 public:
  // Throws Error (kInvalid, kBudget, kSystem); kInvalid also when a checkpoint is of another array.
  static ArrayWriter create(const std::string& path, const ArrayWriterOptions& options);
  ArrayWriter(ArrayWriter&&) noexcept;
  ArrayWriter& operator=(ArrayWriter&&) noexcept;
  ~ArrayWriter();

  // Whole rows, behind the last one. Errors of the disk are thrown by this call or a later one;
  // after one, nothing more can be written.
  void append(std::span<const std::byte> rows);
  // Rows first, first+1, ...: rows that exist, or those that come next. With a fixed number of rows
  // anywhere. Rows that were written already cost a read and a write each: assign many at a time.
  void assign(std::uint64_t first, std::span<const std::byte> rows);
  template <class T>
  void append(std::span<const T> rows) {
    require(DType::of<T>());
    append(std::as_bytes(rows));
  }
  template <class T>
  void assign(std::uint64_t first, std::span<const T> rows) {
    require(DType::of<T>());
    assign(first, std::as_bytes(rows));
  }

  std::uint64_t rows() const;  // the highest row written so far, and one
  std::uint64_t row_bytes() const;
  std::vector<std::uint64_t> shape() const;  // with rows() where it grows
  DType dtype() const;
  const std::string& path() const;
  std::string how() const;  // "O_DIRECT, 4 threads, 16 blocks of 1 MiB"

  // All rows so far are on the disk, and a writer with `resume` goes on here, whatever happens.
  // `state` is kept for it: where the caller was. Costs a flush of the disk's cache.
  void checkpoint(std::string_view state = "");
  const std::string& state() const;  // of the checkpoint that this writer goes on from

  void close();           // completes the file; closing twice is fine
  void abort() noexcept;  // drops it, with its checkpoint

  struct Impl;

 private:
  explicit ArrayWriter(std::unique_ptr<Impl> impl);
  Impl& impl() const;
  void require(DType wanted) const;
  std::unique_ptr<Impl> impl_;
};

struct TokenWriterOptions : WriteOptions {
  // "nanogpt" (bare tokens), "llm.c" (also of modded-nanogpt), "megatron" (.bin and .idx),
  // "datatrove" (.ds and .ds.index) or "npy". Empty: by the name: .npy, .ds, else nanogpt.
  std::string format = {};
  // llm.c: uint16 or uint32. Megatron: uint8, int8, int16, int32, int64 or uint16. datatrove:
  // uint16 or uint32. Others: any integers.
  DType dtype = DType::of<std::uint16_t>();
  // A token that `end_document` writes: before the document's tokens for llm.c, behind them else.
  std::optional<std::int64_t> eot = {};
};

// A token file that is being written: as ArrayWriter, and with the index of documents that the
// format has. Megatron's and datatrove's index gets its name first, so that tokens never stand
// without it.
class TokenWriter {
 public:
  // For "megatron", the path of the .bin, of the .idx, or what both begin with.
  static TokenWriter create(const std::string& path, const TokenWriterOptions& options);
  TokenWriter(TokenWriter&&) noexcept;
  TokenWriter& operator=(TokenWriter&&) noexcept;
  ~TokenWriter();

  // Tokens of the dtype, as they lie in memory.
  void append(std::span<const std::byte> tokens);
  // Any integers; throws Error (kInvalid) for one that does not fit the dtype, before any of these
  // is written.
  void append(std::span<const std::int64_t> tokens);
  // The tokens since the last call are a document. Without a call, all are one.
  void end_document();

  std::uint64_t tokens() const;  // those of `eot` included
  std::uint64_t documents() const;
  DType dtype() const;
  const std::string& format() const;
  const std::string& path() const;  // of the tokens
  std::string how() const;

  // As of ArrayWriter.
  void checkpoint(std::string_view state = "");
  const std::string& state() const;

  void close();
  void abort() noexcept;

  struct Impl;

 private:
  explicit TokenWriter(std::unique_ptr<Impl> impl);
  Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace evenkeel

#pragma GCC visibility pop
