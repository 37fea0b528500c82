// The last row of a terminal, kept for one line of ours while a command writes above it.
#pragma once

#include <chrono>
#include <string>

namespace evenkeel::cli {

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
