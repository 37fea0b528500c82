// XXH3 checksums of the blocks of a file, in a small text file beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"

namespace evenkeel {

constexpr std::uint64_t kChecksumBlock = 1 << 20;

// PATH.xxh3: a line "evenkeel xxh3 1", a line with the bytes of a block and of the file, then the
// 64-bit XXH3 of each block as 16 hexadecimal digits, a line each.
struct Checksums {
  std::uint64_t file_bytes = 0, block_bytes = kChecksumBlock;
  std::vector<std::uint64_t> blocks;

  static std::string path_of(const std::string& file) { return file + ".xxh3"; }
  // Throws Error (kSystem, kFormat).
  static Checksums read(const std::string& path);
  std::string text() const;
};

// Computes the checksums of a file while it is written from its beginning to its end. Blocks that
// are written elsewhere are marked stale; `finish` has them read again.
class RunningChecksums {
 public:
  // These bytes were appended.
  void append(std::span<const std::byte> bytes);
  // This range was written elsewhere. If it goes beyond the end, the file now ends there.
  void change(std::uint64_t offset, std::uint64_t length);
  // The checksums of a file of `file_bytes` bytes. `checksum` is called for stale blocks and for
  // the last one; it must read the block from the file.
  Checksums finish(std::uint64_t file_bytes,
                   const std::function<std::uint64_t(std::uint64_t block)>& checksum);

 private:
  void mark(std::uint64_t block);

  RunningXxh3 hash_;  // of the block that `end_` is in
  std::uint64_t end_ = 0;
  std::vector<std::uint64_t> blocks_;
  std::vector<bool> stale_;
};

}  // namespace evenkeel
