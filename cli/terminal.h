// What goes to the terminal: text, progress, notes, the next command to type.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace evenkeel::cli {

// One line that is rewritten in place, at most ten times a second. Does nothing if stderr is not a
// terminal. The destructor clears the line.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  void show(const std::string& text);
  void clear();
  bool due() const;  // whether show() would print; saves building the text

 private:
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

// "█████░░░░░" for a share of 0..1.
std::string bar(double share, int width = 20);

// The first `columns` characters of UTF-8 text: a line that wraps cannot be rewritten.
std::string first_columns(const std::string& text, std::size_t columns);

// Prints text. All text for people goes through this function: file names and commands may
// contain any bytes, so control sequences are made visible (base/visible.h). On a terminal, the
// first words of some lines have a colour ("note:"), unless NO_COLOR is set. Throws
// Error if stdout cannot be written; what cannot be written to stderr is lost.
void say(std::FILE* where, const std::string& text);
// The same for text that programs read: to stdout, as it is.
void print_out(const std::string& text);
// Throws Error if anything printed to stdout could not be written, for example on a full disk.
void flush_stdout();

void note(const std::string& text);  // prints each text only once
void next_command(const std::string& command, const std::string& why);

// Quotes a path or word for a shell. Invisible characters are quoted for bash, zsh and ksh.
std::string shell_word(const std::string& word);

// A status row at the bottom of the terminal. Does nothing if stderr is not a terminal. The
// destructor gives the row back.
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
