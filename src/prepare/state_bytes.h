// Numbers as bytes, for the state of work that is saved and read again on the same machine.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace evenkeel {

class StateWriter {
 public:
  explicit StateWriter(std::string& out) : out_(out) {}

  template <class Number>
  requires std::is_arithmetic_v<Number>
  void put(Number number) { out_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  template <class Number>
  void put(std::span<const Number> numbers) {
    out_.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
  }

 private:
  std::string& out_;
};

// Reads what a StateWriter wrote. After bytes that are missing, numbers are 0 and good() is false.
class StateReader {
 public:
  explicit StateReader(std::string_view bytes) : rest_(bytes) {}

  template <class Number>
  requires std::is_arithmetic_v<Number>
  void get(Number& number) { get(std::span<Number>(&number, 1)); }
  template <class Number>
  void get(std::span<Number> numbers) {
    if (rest_.size() < numbers.size_bytes()) {
      fail();
      for (Number& number : numbers) number = 0;
      return;
    }
    std::memcpy(numbers.data(), rest_.data(), numbers.size_bytes());
    rest_.remove_prefix(numbers.size_bytes());
  }
  // A number of things, `most` at most; otherwise 0.
  std::uint64_t get_count(std::uint64_t most) {
    std::uint64_t count = 0;
    get(count);
    if (count <= most) return count;
    fail();
    return 0;
  }
  void fail() {
    good_ = false;
    rest_ = {};
  }
  bool good() const { return good_; }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  bool good_ = true;
};

}  // namespace evenkeel
