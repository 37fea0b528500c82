// A table of text for the terminal. Columns are as wide as their content.
#pragma once

#include <string>
#include <vector>

namespace evenkeel::cli {

class Table {
 public:
  // The first column is aligned left, the others right.
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// One line for each name and value: "format    npy".
std::string facts(const std::vector<std::pair<std::string, std::string>>& lines);

// Breaks text into lines of at most `width` columns, each indented by `indent` blanks.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width = 96);

}  // namespace evenkeel::cli
