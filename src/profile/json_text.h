// Writes JSON, value by value. The caller is responsible for the order of keys and values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace evenkeel {

class JsonText {
 public:
  JsonText& open(char bracket) { return piece(bracket); }  // { or [
  JsonText& close(char bracket) {
    text_ += bracket;
    return *this;
  }
  JsonText& key(std::string_view name);

  // Bytes that are not UTF-8 are replaced by U+FFFD.
  JsonText& text(std::string_view value);
  JsonText& whole(std::uint64_t value);
  JsonText& real(double value);  // the shortest text that reads back the same; null if not finite
  JsonText& flag(bool value);
  JsonText& null();

  std::string take() { return std::move(text_); }

 private:
  void comma();
  template <typename Piece>
  JsonText& piece(const Piece& value) {
    comma();
    text_ += value;
    return *this;
  }

  std::string text_;
};

// Returns the value with quotes around it.
std::string json_quoted(std::string_view value);

// Returns the same JSON with control characters of terminals (base/visible.h) written as \uNNNN.
// Newlines stay.
std::string json_without_controls(std::string_view json);

}  // namespace evenkeel
