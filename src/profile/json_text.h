// Writes JSON, piece by piece. The caller sees to the order of keys and values.
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

  // Text that is not UTF-8 is written with U+FFFD in its place.
  JsonText& text(std::string_view value);
  JsonText& whole(std::uint64_t value);
  JsonText& real(double value);  // as short as reads back the same; null when not finite
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

// Quotes included.
std::string json_quoted(std::string_view value);

// The same JSON, with characters that a terminal obeys (base/visible.h) as \uNNNN; line ends stay.
std::string json_without_controls(std::string_view json);

}  // namespace evenkeel
