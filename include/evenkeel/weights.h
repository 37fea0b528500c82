// Model weights: named tensors in safetensors and GGUF files, read at the speed of the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/array.h"
#include "evenkeel/budget.h"
#include "evenkeel/compiler.h"
#include "evenkeel/dtype.h"
#include "evenkeel/error.h"

#pragma GCC visibility push(default)

namespace evenkeel {

// The name and type of a tensor, and where its bytes are. They are stored row-major and
// little-endian.
struct Tensor {
  std::string name;
  std::string type;  // as the format names it: "BF16", "F8_E4M3", "Q4_K"
  // The type as a DType; empty if there is none: 8-bit floats, quantised blocks.
  std::optional<DType> dtype = {};
  std::vector<std::uint64_t> shape = {};
  std::uint32_t file = 0;    // index into Weights::paths()
  std::uint64_t offset = 0;  // in that file
  std::uint64_t bytes = 0;
};

struct WeightsOptions {
  // Covers headers and buffers for reading. It does not cover the memory that tensors are read
  // into.
  Budget budget = {};
  EngineKind engine = EngineKind::kAuto;  // kAuto never maps the files
};

// A tensor that owns its memory. It is aligned at least as it is in the file, up to 512 bytes.
// Movable, not copyable; a moved-from tensor may only be destroyed or assigned to.
class LoadedTensor {
 public:
  LoadedTensor(LoadedTensor&&) noexcept;
  LoadedTensor& operator=(LoadedTensor&&) noexcept;
  ~LoadedTensor();
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  friend class Weights;
  struct Memory;
  LoadedTensor(std::unique_ptr<Memory> memory, std::span<std::byte> bytes);
  std::unique_ptr<Memory> memory_;
  std::span<std::byte> bytes_;
};

// The tensors of one file, or of the shards of a model. Opening reads only headers. All calls
// except `close` and moves may be made from several threads at once. After `fork` a child may
// continue to use the weights. Reading leaves nothing in the page cache. If a file changes while it
// is open, the next read fails. The references and `Tensor` pointers that calls return are valid
// until `close`. Loaded tensors and arrays do not need the Weights any more. Movable, not copyable;
// a moved-from object is closed.
class Weights {
 public:
  // A .safetensors or .gguf file; a pattern; an index of shards (model.safetensors.index.json); or
  // the folder of a model. Files may be URLs. Throws Error (kFormat, kInvalid, kSystem, kBudget).
  static Weights open(const std::string& path, const WeightsOptions& options = {});

  Weights(Weights&&) noexcept;
  Weights& operator=(Weights&&) noexcept;
  ~Weights();

  const std::string& format() const;  // "safetensors", "gguf"
  const std::vector<std::string>& paths() const;
  const std::vector<Tensor>& tensors() const;  // ordered by file and offset
  const Tensor* find(std::string_view name) const;
  // Throws Error (kIndex) that names the closest tensor.
  const Tensor& at(std::string_view name) const;
  // The metadata of the files. For GGUF these are keys with numbers, booleans and strings; arrays
  // are left out.
  const std::map<std::string, std::string>& metadata() const;
  std::uint64_t bytes() const;  // of all tensors
  const Budget& budget() const;
  EngineReport engine() const;
  ArrayStats stats() const;  // see array.h

  // Reads a tensor into `out`, which must hold tensor.bytes bytes.
  void read(const Tensor& tensor, std::span<std::byte> out) const;
  // Reads tensors into new memory; large ones straight from the disk into huge pages. The memory
  // belongs to the caller and does not count against the budget.
  std::vector<LoadedTensor> load(std::span<const Tensor* const> tensors) const;
  // A tensor as an array, to read parts of it within the budget. Throws Error (kInvalid) if it has
  // no dtype.
  Array array(const Tensor& tensor) const;

  // Closes the files and frees all memory. Later calls throw Error (kClosed); closing twice is
  // fine.
  void close();

  struct Impl;

 private:
  friend struct WeightsInternals;  // src/weights/impl.h
  explicit Weights(std::shared_ptr<Impl> impl);
  Impl& impl() const;
  std::shared_ptr<Impl> impl_;
};

}  // namespace evenkeel

#pragma GCC visibility pop
