// Decoders of compressed chunks. Their libraries are loaded when they are first needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/budget.h"
#include "format/chunk_grid.h"

namespace evenkeel {

// Decodes a chunk into memory of the expected size. Never writes beyond it, whatever the input.
// Not thread-safe.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // Throws Error (kFormat) if `stored` is damaged, or does not decode to exactly out.size() bytes.
  // `name` is the name of the chunk, for errors.
  virtual void decode(std::span<const std::byte> stored, std::span<std::byte> out,
                      const std::string& name) = 0;
  // The memory that a decoder allocates, which its owner must reserve. Chunks that need more
  // reserve the rest while they are decoded.
  static std::uint64_t memory(Compression compression, std::uint64_t chunk_bytes);
};

// `libraries` are paths to try if the system does not have the library. If none can be loaded,
// throws Error (kInvalid) with a hint what to install.
std::unique_ptr<Decoder> make_decoder(Compression compression,
                                      const std::vector<std::string>& libraries,
                                      const Budget& budget);

std::uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace evenkeel
