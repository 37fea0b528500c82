// XXH3 checksums of the blocks of a file, in a small text file beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/budget.h"

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

std::uint64_t checksum_of(std::span<const std::byte> block);
struct Hash128 {
  std::uint64_t high = 0, low = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};
Hash128 hash128_of(std::span<const std::byte> bytes);  // XXH3 of 128 bits
// Of so many bytes that come in pieces: `piece(at)` is what begins `at` bytes behind the first.
std::uint64_t checksum_of(std::uint64_t length,
                          const std::function<std::span<const std::byte>(std::uint64_t at)>& piece);

// Takes checksums of a file while it is written from its beginning to its end. What is written
// elsewhere is marked; the caller then reads those blocks again.
class RunningChecksums {
 public:
  RunningChecksums();
  ~RunningChecksums();
  RunningChecksums(const RunningChecksums&) = delete;
  RunningChecksums& operator=(const RunningChecksums&) = delete;

  // These bytes follow on the last.
  void append(std::span<const std::byte> bytes);
  // These were written elsewhere; beyond the end, the file now ends behind them.
  void change(std::uint64_t offset, std::uint64_t length);
  // Of a file of so many bytes. Blocks that changed, and the last, are read by `read`.
  Checksums finish(std::uint64_t file_bytes,
                   const std::function<std::uint64_t(std::uint64_t block)>& checksum);

 private:
  struct State;
  void mark(std::uint64_t block);

  std::unique_ptr<State> state_;
  std::uint64_t end_ = 0;
  std::vector<std::uint64_t> blocks_;
  std::vector<bool> stale_;
};

}  // namespace evenkeel
