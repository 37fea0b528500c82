#include <algorithm>
#include <bit>
#include <cstddef>
#include <string>

#include "evenkeel/error.h"
#include "evenkeel/order.h"
#include "order/philox.h"

namespace evenkeel {
namespace {

// A round does not separate two rows that agree in the half it reads, and in narrow halves many
// rows agree. So narrow networks have more rounds (kMaxRounds). With ideal rounds, these numbers
// keep the joint distribution of any two rows within 2^-20 of uniform (docs/orders.md).
constexpr unsigned kMinWidth = 8;    // bits
constexpr unsigned kWideWidth = 16;  // bits; networks of this width and more have kWideRounds
constexpr unsigned kWideRounds = 8;

// z = multiplier * x + addend is pairwise independent in its top 32 bits if multiplier and addend
// are random. The other two operations make it nonlinear. Callers use the top bits, which are the
// best mixed.
std::uint64_t mix(std::uint64_t x, std::uint64_t multiplier, std::uint64_t addend) {
  std::uint64_t z = x * multiplier + addend;
  z ^= z >> 32;
  return z * 0x9E3779B97F4A7C15u;
}

std::uint64_t low_mask(unsigned bits) { return (std::uint64_t{1} << bits) - 1; }

// The CPU cannot predict how many steps a cycle walk takes, and a mispredicted branch costs as much
// as the walk. So a whole block of values takes each step together, and the values that are still
// outside 0..n-1 are listed without a branch.
template <class Scramble>
void walk_together(std::uint64_t n, std::uint64_t first, std::uint64_t step,
                   std::span<std::uint64_t> values, const Scramble& scramble) {
  constexpr std::size_t kBlock = 256;
  std::uint16_t outside[kBlock];
  for (std::size_t done = 0; done < values.size(); done += kBlock) {
    const auto block = values.subspan(done, std::min(kBlock, values.size() - done));
    std::size_t count = 0;
    for (std::size_t i = 0; i < block.size(); ++i) {
      block[i] = scramble(first + (done + i) * step);
      outside[count] = static_cast<std::uint16_t>(i);
      count += block[i] >= n;
    }
    while (count > 0) {
      std::size_t left = 0;
      for (std::size_t j = 0; j < count; ++j) {
        const std::uint16_t i = outside[j];
        block[i] = scramble(block[i]);
        outside[left] = i;
        left += block[i] >= n;
      }
      count = left;
    }
  }
}

}  // namespace

Permutation::Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch)
    : Permutation(n, seed, epoch, KeysFrom{static_cast<std::uint64_t>(Stream::kRoundKeys)}) {}

Permutation::Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch, KeysFrom keys)
    : n_(n) {
  if (n == 0) {
    throw Error(ErrorKind::kInvalid, "permutation", "cannot permute 0 rows")
        .hint("use at least 1 row");
  }
  const unsigned width = std::max(kMinWidth, static_cast<unsigned>(std::bit_width(n - 1)));
  high_bits_ = width / 2;
  low_bits_ = width - high_bits_;
  rounds_ = width < kWideWidth ? kMaxRounds : kWideRounds;
  for (unsigned i = 0; i < rounds_; ++i) {
    const Block block = philox(seed, epoch, Stream{keys.first_key}, i);
    keys_[i] = {block.low, block.high};
  }
}

std::uint64_t Permutation::scramble(std::uint64_t x) const {
  std::uint64_t low = x & low_mask(low_bits_), high = x >> low_bits_;
  for (unsigned i = 0; i < rounds_; i += 2) {
    high ^= mix(low, keys_[i].multiplier, keys_[i].addend) >> (64 - high_bits_);
    low ^= mix(high, keys_[i + 1].multiplier, keys_[i + 1].addend) >> (64 - low_bits_);
  }
  return high << low_bits_ | low;
}

std::uint64_t Permutation::unscramble(std::uint64_t x) const {
  std::uint64_t low = x & low_mask(low_bits_), high = x >> low_bits_;
  for (unsigned i = rounds_; i > 0; i -= 2) {
    low ^= mix(high, keys_[i - 1].multiplier, keys_[i - 1].addend) >> (64 - low_bits_);
    high ^= mix(low, keys_[i - 2].multiplier, keys_[i - 2].addend) >> (64 - high_bits_);
  }
  return high << low_bits_ | low;
}

// Cycle walking from an argument outside 0..n-1 might never end, so the argument is always checked.
void Permutation::check(const char* what, std::uint64_t argument) const {
  if (argument < n_) return;
  throw Error(ErrorKind::kIndex, "permutation",
              std::string(what) + " " + std::to_string(argument) + " is outside 0.." +
                  std::to_string(n_ - 1));
}

std::uint64_t Permutation::operator()(std::uint64_t position) const {
  check("position", position);
  std::uint64_t x = position;
  do x = scramble(x);
  while (x >= n_);
  return x;
}

std::uint64_t Permutation::inverse(std::uint64_t value) const {
  check("value", value);
  std::uint64_t x = value;
  do x = unscramble(x);
  while (x >= n_);
  return x;
}

// In the narrowest network a half has 16 values, so that a table of each round is small. Walks are
// long there, because few of the network's 256 values are below n.
void Permutation::fill(std::uint64_t first, std::uint64_t step,
                       std::span<std::uint64_t> values) const {
  constexpr unsigned kHalf = kMinWidth / 2, kHalfValues = 1U << kHalf;
  constexpr std::uint64_t kWorthATable = 16;  // values of the network for each that is wanted
  const bool narrow = low_bits_ + high_bits_ == kMinWidth && values.size() >= n_ / kWorthATable;
  if (!narrow || values.size() < 2) {
    return walk_together(n_, first, step, values, [&](std::uint64_t x) { return scramble(x); });
  }
  std::uint8_t tables[kMaxRounds][kHalfValues];
  for (unsigned i = 0; i < kMaxRounds; ++i) {
    for (unsigned half = 0; half < kHalfValues; ++half) {
      const std::uint64_t mixed = mix(half, keys_[i].multiplier, keys_[i].addend);
      tables[i][half] = static_cast<std::uint8_t>(mixed >> (64 - kHalf));
    }
  }
  walk_together(n_, first, step, values, [&](std::uint64_t x) {
    std::uint64_t low = x & low_mask(kHalf), high = x >> kHalf;
    for (unsigned i = 0; i < kMaxRounds; i += 2) {
      high ^= tables[i][low];
      low ^= tables[i + 1][high];
    }
    return high << kHalf | low;
  });
}

}  // namespace evenkeel
