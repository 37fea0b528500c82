#include "cli/status_row.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/terminal.h"

namespace evenkeel::cli {
namespace {

winsize size_of_terminal() {
  winsize size = {};
  ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
  return size;
}

// In one write, so that nothing of the command's comes between.
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

// All above scrolls by itself from now on. The line feed makes room if the cursor is on that row.
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
