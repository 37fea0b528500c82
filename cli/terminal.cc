#include "cli/terminal.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "base/text_file.h"
#include "base/visible.h"
#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

std::size_t terminal_columns() {
  winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

// Messages may be lost (a full disk, a terminal that was closed), but
// the work goes on.
void put_message(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

std::string first_columns(const std::string& text, std::size_t columns) {
  std::size_t count = 0, at = 0;
  for (; at < text.size(); ++at) {
    const bool begins = (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
    if (begins && count++ == columns) break;
  }
  return text.substr(0, at);
}

Progress::Progress() : terminal_(::isatty(STDERR_FILENO) == 1) {}

bool Progress::due() const {
  return terminal_ &&
         (!shown_ || std::chrono::steady_clock::now() - last_ >= std::chrono::milliseconds(100));
}

void Progress::show(const std::string& text) {
  if (!due()) return;
  put_message("\r\033[K" + first_columns(visible(text), terminal_columns() - 1));
  shown_ = true;
  last_ = std::chrono::steady_clock::now();
}

void Progress::clear() {
  if (!shown_) return;
  put_message("\r\033[K");
  shown_ = false;
}

std::string bar(double share, int width) {
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * width);
  std::string text;
  for (int i = 0; i < width; ++i) text += i < full ? "█" : "░";
  return text;
}

namespace {

// https://no-color.org: any value that is not empty disables colours.
bool has_colours(std::FILE* where) {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  if ((no_colour && *no_colour != '\0') || !kind || std::string_view(kind) == "dumb") return false;
  return ::isatty(::fileno(where)) == 1;
}

struct Colour {
  std::string_view begins, code;
};
constexpr Colour kColours[] = {
    {"evenkeel:", "31;1"},
    {"note:", "33"},
    {"hint:", "36"},
    {"next:", "32;1"},
    {"Memory exceeded", "31;1"},
    {"Over the budget", "31;1"},
    {"Who would end this job:", "1"},
};

std::string coloured(std::string_view text) {
  std::string out;
  std::string_view line;
  while (take_line(text, line)) {
    const auto colour = std::ranges::find_if(
        kColours, [&](const Colour& one) { return line.starts_with(one.begins); });
    if (colour != std::end(kColours)) {
      out += fmt::format("\033[{}m{}\033[0m", colour->code, colour->begins);
      line.remove_prefix(colour->begins.size());
    }
    out += line;
    if (line.data() + line.size() != text.data() + text.size()) out += '\n';
  }
  return out;
}

}  // namespace

void say(std::FILE* where, const std::string& text) {
  const std::string shown = visible(text, "\n\t");
  const std::string painted = has_colours(where) ? coloured(shown) : shown;
  if (where == stderr) return put_message(painted);
  print_out(painted);
}

// Not fmt::print, whose error does not name stdout.
void print_out(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size()) return;
  throw Error::system("write", errno).in("stdout");
}

void flush_stdout() {
  if (std::fflush(stdout) != 0) throw Error::system("write", errno).in("stdout");
  if (std::ferror(stdout) != 0) throw Error::system("write", EIO).in("stdout");
}

void note(const std::string& text) {
  static std::set<std::string> said;
  if (said.insert(text).second) say(stderr, fmt::format("note: {}\n", text));
}

void next_command(const std::string& command, const std::string& why) {
  flush_stdout();  // no advice after a result that could not be printed
  say(stderr, fmt::format("\nnext: {}\n      {}\n", command, why));
}

namespace {

// Quotes as $'...', with every byte that is not printable ASCII in octal.
std::string shell_escapes(const std::string& word) {
  std::string quoted = "$'";
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\'' || c == '\\') {
      quoted += {'\\', c};
    } else if (byte >= 0x20 && byte < 0x7F) {
      quoted += c;
    } else {
      quoted += fmt::format("\\{:03o}", byte);
    }
  }
  return quoted + "'";
}

}  // namespace

std::string shell_word(const std::string& word) {
  if (visible(word) != word) return shell_escapes(word);
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-./,:=+@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quoted = "'";
  for (char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

namespace {

winsize size_of_terminal() {
  winsize size = {};
  ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
  return size;
}

// In one write, so that output of the command cannot come between.
void put(const std::string& text) {
  static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
}

}  // namespace

StatusRow::StatusRow(bool wanted) : terminal_(wanted && ::isatty(STDERR_FILENO) == 1) {}

StatusRow::~StatusRow() {
  if (rows_ > 0) put(fmt::format("\0337\033[r\033[{};1H\033[2K\0338", rows_));
}

bool StatusRow::due() const {
  return terminal_ && std::chrono::steady_clock::now() - last_ >= std::chrono::milliseconds(250);
}

// Restricts scrolling to the rows above the status row. The line feed makes room if the cursor is
// on that row.
void StatusRow::take_row() {
  const winsize size = size_of_terminal();
  if (size.ws_row == rows_ && size.ws_col == columns_) return;
  if (size.ws_row < 4 || size.ws_col < 20) {
    terminal_ = false;
    return;
  }
  rows_ = size.ws_row;
  columns_ = size.ws_col;
  put(fmt::format("\n\0337\033[1;{}r\0338\033[1A", rows_ - 1));
}

void StatusRow::show(const std::string& text) {
  if (!due()) return;
  last_ = std::chrono::steady_clock::now();
  take_row();
  if (!terminal_) return;
  put(fmt::format("\0337\033[{};1H\033[2K\033[7m{}\033[0m\0338", rows_,
                  first_columns(text, static_cast<std::size_t>(columns_))));
}

}  // namespace evenkeel::cli
