// What goes to the terminal: text, progress, notes, the next command to type.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace evenkeel::cli {

// One line that is rewritten in place, ten times a second at most; nothing where stderr is no
// terminal. The line is gone when this is.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  void show(const std::string& text);
  void clear();
  bool due() const;  // whether show would show: spares making the text

 private:
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

// "█████░░░░░" for a share of 0..1.
std::string bar(double share, int width = 20);

// The first `columns` characters of UTF-8 text: a line that wraps cannot be rewritten.
std::string first_columns(const std::string& text, std::size_t columns);

// All words of the tool go out through here: names of files and words of commands are bytes from
// anywhere, and what a terminal would obey is shown instead (base/visible.h). On a terminal, the
// words that begin a line have a colour ("note:"), unless NO_COLOR is set.
void say(std::FILE* where, const std::string& text);

void note(const std::string& text);  // the same one is said once
void next_command(const std::string& command, const std::string& why);

// A path or word as a shell takes it; what cannot be seen, as bash, zsh and ksh take it.
std::string shell_word(const std::string& word);

// Nothing where stderr is no terminal. The row is given back when this goes.
class StatusRow {
 public:
  explicit StatusRow(bool wanted);
  ~StatusRow();
  StatusRow(const StatusRow&) = delete;
  StatusRow& operator=(const StatusRow&) = delete;
  bool due() const;  // four times a second
  void show(const std::string& text);

 private:
  void take_row();

  bool terminal_;
  int rows_ = 0, columns_ = 0;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace evenkeel::cli
