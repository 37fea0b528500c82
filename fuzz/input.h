// The bytes of one execution, consumed from the front. Reads beyond the end return zeros, so that
// every input is valid.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace evenkeel::fuzz {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : rest_(reinterpret_cast<const char*>(data), size) {}

  template <class T>
  T number() {
    T value = 0;
    const std::size_t taken = std::min(sizeof value, rest_.size());
    if (taken > 0) std::memcpy(&value, rest_.data(), taken);
    rest_.remove_prefix(taken);
    return value;
  }
  // From 0 to `most`, both included.
  std::uint64_t upto(std::uint64_t most) {
    if (most == UINT64_MAX) return number<std::uint64_t>();
    if (most < 256) return number<std::uint8_t>() % (most + 1);
    if (most < 65536) return number<std::uint16_t>() % (most + 1);
    return number<std::uint64_t>() % (most + 1);
  }
  bool flag() { return (number<std::uint8_t>() & 1) != 0; }
  // A number of any magnitude: small numbers are as likely as large ones.
  std::uint64_t any_size() {
    const unsigned bits = number<std::uint8_t>() % 65;
    const std::uint64_t value = number<std::uint64_t>();
    return bits == 0 ? 0 : value >> (64 - bits);
  }
  std::string_view text(std::size_t most) {
    const std::size_t length = upto(most);  // consumes bytes, too
    const std::string_view taken = rest_.substr(0, length);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

}  // namespace evenkeel::fuzz
