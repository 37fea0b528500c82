// What a file of model weights contains: named tensors at known offsets. Both Safetensors and GGUF
// produce it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/weights.h"
#include "format/source.h"

namespace evenkeel {

// Invariants: every tensor lies inside its file; sums and products do not overflow; names differ.
struct TensorTable {
  std::string_view format;
  std::vector<Tensor> tensors;  // sorted by offset; Tensor::file is set by the caller
  std::map<std::string, std::string> metadata;
};

// Whether a file that begins with `head` and has `size` bytes has this format.
bool is_safetensors(std::string_view head, std::uint64_t size);
bool is_gguf(std::string_view head);

// Read only the header; its memory is reserved from the budget first. Throw Error: kFormat says
// which rule of the format is broken, kBudget that the header does not fit.
TensorTable read_safetensors(const Source& source, const Budget& budget);
TensorTable read_gguf(const Source& source, const Budget& budget);

// The files that a safetensors index names, and which of them holds each tensor.
struct SafetensorsIndex {
  std::vector<std::string> files;              // paths, sorted
  std::map<std::string, std::size_t> tensors;  // name to index in `files`
};
// Throws Error (kFormat), also if a file lies outside the folder of the index.
SafetensorsIndex read_safetensors_index(const std::string& path, const Budget& budget);

}  // namespace evenkeel
