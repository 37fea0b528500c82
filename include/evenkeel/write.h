// Writing arrays and token files far larger than memory, within a budget.
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

// Options of all writers.
struct WriteOptions {
  // Bytes that the writer may occupy: its buffers (16 MiB at most), and the page cache if the
  // filesystem does not support direct writes. An upload takes three quarters of it, at most
  // 256 MiB unless `expected_bytes` needs more; it needs 21 MiB. See budget.h.
  Budget budget = {};
  // Writes FILE.xxh3 beside the file, which `evenkeel verify` checks. Not for uploads.
  bool checksums = false;
  // Continues from the last checkpoint of a writer that was killed. Without a checkpoint, it starts
  // from the beginning. Not for uploads.
  bool resume = false;
  // Called every 50 ms while waiting for the disk or the server. An exception from it ends the
  // wait, and the writer can no longer be used.
  std::function<void()> while_waiting = {};
  // About how many bytes will be written; 0: not known. An object on a server has at most 10,000
  // parts. This number makes the parts large enough, and a budget that is too small for them fails
  // at once. It is not needed with a fixed shape.
  std::uint64_t expected_bytes = 0;
};

struct ArrayWriterOptions : WriteOptions {
  DType dtype = DType::of<float>();
  // A first axis of -1 grows as rows are appended. Otherwise the file has exactly the given number
  // of rows: its space is allocated at once, and rows that are never written are zeros.
  std::vector<std::int64_t> shape = {-1};
  // "npy", "raw" (no header), or empty: "npy" for names that end with .npy, else "raw".
  std::string format = {};
  // The element type in the NPY header, as NumPy writes it, if DType has no name for it: "[('x',
  // '<f4'), ('y', '<i8')]". It must have the size of `dtype`.
  std::string descr = {};
};

// Writes an array file. The file gets its name only in `close`, when it is complete. Until then it
// is NAME.partial, and a crash leaves the old file or none. Data goes to the disk by direct writes,
// several at a time, while the caller produces more. Nothing stays in the page cache. If the path
// is s3://bucket/key, the data is uploaded in parts instead, and `close` makes the object appear;
// docs/writing.md says what uploads cannot do. Use it from one thread at a time; do not use it in a
// child of fork. Movable, not copyable; a moved-from writer may only be destroyed or assigned to.
// Without `close`, the destructor deletes the partial file unless it has a checkpoint, or drops the
// upload.
class ArrayWriter {
 public:
  // Throws Error (kInvalid, kBudget, kSystem); kInvalid also if the checkpoint belongs to another
  // array.
  static ArrayWriter create(const std::string& path, const ArrayWriterOptions& options);
  ArrayWriter(ArrayWriter&&) noexcept;
  ArrayWriter& operator=(ArrayWriter&&) noexcept;
  ~ArrayWriter();

  // Appends whole rows. Errors of the disk are thrown by this call or a later one. After an error
  // nothing more can be written.
  void append(std::span<const std::byte> rows);
  // Writes rows first, first+1, ... They must exist or follow the last row; with a fixed number of
  // rows they may be anywhere. Overwriting rows costs a read and a write, so assign many at a time.
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

  std::uint64_t rows() const;  // the highest row written so far, plus one
  std::uint64_t row_bytes() const;
  std::vector<std::uint64_t> shape() const;  // a growing first axis is rows()
  DType dtype() const;
  const std::string& path() const;
  std::string how() const;  // "O_DIRECT, 4 threads, 16 blocks of 1 MiB"

  // When this returns, all rows so far are on the disk, and after a crash a writer with `resume`
  // continues here. `state` is stored with the checkpoint, for the caller's own position. Costs a
  // flush of the disk's cache.
  void checkpoint(std::string_view state = "");
  const std::string& state() const;  // of the checkpoint that this writer resumed from

  void close();           // completes the file; closing twice is fine
  void abort() noexcept;  // deletes it and its checkpoint

  struct Impl;

 private:
  explicit ArrayWriter(std::unique_ptr<Impl> impl);
  Impl& impl() const;
  void require(DType wanted) const;
  std::unique_ptr<Impl> impl_;
};

struct TokenWriterOptions : WriteOptions {
  // "nanogpt" (bare tokens), "llm.c" (also modded-nanogpt), "megatron" (.bin and .idx), "datatrove"
  // (.ds and .ds.index) or "npy". Empty: chosen by the extension: .npy, .ds, otherwise nanogpt.
  std::string format = {};
  // llm.c: uint16 or uint32. Megatron: uint8, int8, int16, int32, int64 or uint16. datatrove:
  // uint16 or uint32. Others: any integer type.
  DType dtype = DType::of<std::uint16_t>();
  // A token that `end_document` adds: before the tokens of the document for llm.c, after them for
  // other formats.
  std::optional<std::int64_t> eot = {};
};

// Writes a token file, like ArrayWriter, and the document index of the format. The index of
// Megatron and datatrove is renamed first, so that tokens never exist without it.
class TokenWriter {
 public:
  // For "megatron", the path of the .bin, of the .idx, or their common prefix.
  static TokenWriter create(const std::string& path, const TokenWriterOptions& options);
  TokenWriter(TokenWriter&&) noexcept;
  TokenWriter& operator=(TokenWriter&&) noexcept;
  ~TokenWriter();

  // Appends tokens of the dtype, as they are in memory.
  void append(std::span<const std::byte> tokens);
  // Appends any integers. Throws Error (kInvalid) if one does not fit the dtype, before any of them
  // is written.
  void append(std::span<const std::int64_t> tokens);
  // Ends a document: the tokens since the last call. Without any call, all tokens are one document.
  void end_document();

  std::uint64_t tokens() const;  // including those of `eot`
  std::uint64_t documents() const;
  DType dtype() const;
  const std::string& format() const;
  const std::string& path() const;  // of the tokens
  std::string how() const;

  // As in ArrayWriter.
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
