#include "format/literal.h"

#include <limits>
#include <utility>

#include "format/part.h"

namespace evenkeel {
namespace {

// Far above what any real header contains. They keep a hostile header from exhausting the stack or
// memory.
constexpr int kMostLevels = 32;
constexpr int kMostValues = 65'536;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Literal whole() {
    Literal literal = value(0);
    skip_blanks();
    if (at_ < text_.size()) fail("unexpected " + here() + " after the end");
    return literal;
  }

 private:
  [[noreturn]] void fail(std::string problem) const { throw LiteralError{std::move(problem), at_}; }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  std::string here() const {
    if (at_ >= text_.size()) return "end of the header";
    return "'" + printable(text_.substr(at_, 1)) + "'";
  }

  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }

  bool take(char wanted) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  Literal value(int level) {
    skip_blanks();
    if (level > kMostLevels) fail("nested more than 32 levels deep");
    if (++values_ > kMostValues) fail("more than 65,536 values");
    Literal literal;
    literal.at = at_;
    const char c = peek();
    if (c == '\'' || c == '"') {
      string(literal);
    } else if (is_digit(c) || c == '-') {
      number(literal);
    } else if (is_letter(c)) {
      word(literal);
    } else if (take('(')) {
      sequence(literal, Literal::Type::kTuple, ')', level);
    } else if (take('[')) {
      sequence(literal, Literal::Type::kList, ']', level);
    } else if (take('{')) {
      sequence(literal, Literal::Type::kDict, '}', level);
    } else {
      fail("expected a value, found " + here());
    }
    return literal;
  }

  void string(Literal& literal) {
    const char quote = text_[at_++];
    const std::size_t begin = at_;
    while (peek() != quote) {
      if (at_ >= text_.size() || peek() == '\n') fail("a string without its closing quote");
      at_ += peek() == '\\' ? 2 : 1;
    }
    literal.type = Literal::Type::kString;
    literal.text = text_.substr(begin, at_++ - begin);
  }

  void number(Literal& literal) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    literal.negative = take('-');
    if (!is_digit(peek())) fail("expected a digit, found " + here());
    for (; is_digit(peek()); ++at_) {
      const auto digit = static_cast<std::uint64_t>(peek() - '0');
      if (literal.number > (kMost - digit) / 10) fail("a number above 2^63-1");
      literal.number = literal.number * 10 + digit;
    }
    if (peek() == 'L') ++at_;  // as Python 2 wrote it
    if (peek() == '.' || is_letter(peek())) fail("expected a whole number, found " + here());
  }

  void word(Literal& literal) {
    const std::size_t begin = at_;
    while (is_letter(peek()) || is_digit(peek())) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    literal.type = Literal::Type::kBool;
    literal.truth = name == "True";
    if (literal.truth || name == "False") return;
    at_ = begin;
    fail("expected a value, found '" + printable(name) + "'");
  }

  void sequence(Literal& literal, Literal::Type type, char close, int level) {
    literal.type = type;
    bool comma = true;
    while (!take(close)) {
      if (!comma) fail("expected ',' or '" + std::string(1, close) + "', found " + here());
      literal.items.push_back(value(level + 1));
      if (type == Literal::Type::kDict) {
        if (!take(':')) fail("expected ':', found " + here());
        literal.items.push_back(value(level + 1));
      }
      comma = take(',');
    }
    // "(5)" is five in brackets, as in Python.
    if (type == Literal::Type::kTuple && literal.items.size() == 1 && !comma) {
      Literal inner = std::move(literal.items[0]);
      literal = std::move(inner);
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int values_ = 0;
};

}  // namespace

Literal parse_literal(std::string_view text) { return Parser(text).whole(); }

}  // namespace evenkeel
