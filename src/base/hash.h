// XXH3, the hash behind all checksums: of blocks on disk, of files that are written, of data that
// was read. It is fast, but not cryptographic: collisions can be constructed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace evenkeel {

std::uint64_t xxh3(std::span<const std::byte> bytes, std::uint64_t seed = 0);

struct Hash128 {
  std::uint64_t high = 0, low = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};
Hash128 xxh3_128(std::span<const std::byte> bytes);

// Hashes bytes that arrive in parts. The result is the same as for all of them at once.
class RunningXxh3 {
 public:
  explicit RunningXxh3(std::uint64_t seed = 0);
  ~RunningXxh3();
  RunningXxh3(const RunningXxh3&) = delete;
  RunningXxh3& operator=(const RunningXxh3&) = delete;

  void append(std::span<const std::byte> bytes);
  std::uint64_t hash() const;  // of what was appended since the last `reset`
  void reset(std::uint64_t seed = 0);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace evenkeel
