// A set of 128-bit hashes in memory of a fixed size.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/hash.h"
#include "base/memory.h"

namespace evenkeel {

// Open addressing with linear probing, 16 bytes per slot. Hashes must be uniform.
class HashSet {
 public:
  // How many hashes fit in `bytes` before the set is full.
  static std::uint64_t most(std::uint64_t bytes) { return bytes / sizeof(Hash128) / 4 * 3; }

  HashSet(const Budget& budget, std::uint64_t bytes)
      : memory_(budget, bytes, "hashes"),
        slots_(memory_.size() / sizeof(Hash128)),
        most_(most(memory_.size())) {}

  // True if the hash is new. The set must not be full.
  bool add(const Hash128& hash) {
    if (hash == Hash128{}) {  // what an empty slot looks like
      const bool was = zero_;
      zero_ = true;
      return !was;
    }
    auto* const slots = reinterpret_cast<Hash128*>(memory_.data());
    // The multiplication spreads the low bits; the high bits may be equal for all hashes.
    constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;  // 2^64 / the golden ratio
    auto slot = static_cast<std::uint64_t>(
        static_cast<unsigned __int128>(hash.low * kSpread) * slots_ >> 64);
    for (;; slot = slot + 1 == slots_ ? 0 : slot + 1) {
      if (slots[slot] == hash) return false;
      if (slots[slot] == Hash128{}) break;
    }
    slots[slot] = hash;
    ++count_;
    return true;
  }
  bool full() const { return count_ >= most_; }
  void clear() {
    if (count_ > 0) std::memset(memory_.data(), 0, memory_.size());
    count_ = 0;
    zero_ = false;
  }

 private:
  PageBuffer memory_;
  std::uint64_t slots_, most_, count_ = 0;
  bool zero_ = false;
};

}  // namespace evenkeel
