// Decoders of compressed chunks: the well-known libraries, loaded when the first is needed.
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

// Decodes into memory of the size that is expected, and never writes beyond it, whatever the bytes
// say. One thread at a time.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // Throws Error (kFormat) when `stored` is damaged, or does not decode to exactly out.size()
  // bytes. `name` is of the chunk, for errors.
  virtual void decode(std::span<const std::byte> stored, std::span<std::byte> out,
                      const std::string& name) = 0;
  // What one allocates for itself; its owner reserves it. Chunks that need more reserve the rest
  // while they are decoded.
  static std::uint64_t memory(Compression compression, std::uint64_t chunk_bytes);
};

// `libraries` are tried where the system has none of its own. Throws Error (kInvalid) that says
// what to install.
std::unique_ptr<Decoder> make_decoder(Compression compression,
                                      const std::vector<std::string>& libraries,
                                      const Budget& budget);

// The CRC-32C of bytes.
std::uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace evenkeel
