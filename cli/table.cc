#include "cli/table.h"

#include <algorithm>
#include <sstream>

namespace evenkeel::cli {
namespace {

std::size_t columns_of(const std::string& text) {  // UTF-8: bytes that begin a character
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string blanks(std::size_t width, const std::string& text) {
  const std::size_t used = columns_of(text);
  return std::string(width > used ? width - used : 0, ' ');
}

}  // namespace

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], columns_of(row[i]));
    }
  }
  std::string out;
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      out +=
          i == 0 ? row[i] + blanks(widths[i], row[i]) : "   " + blanks(widths[i], row[i]) + row[i];
    }
    out += '\n';
  }
  return out;
}

std::string facts(const std::vector<std::pair<std::string, std::string>>& lines) {
  std::size_t width = 0;
  for (const auto& line : lines) width = std::max(width, columns_of(line.first));
  std::string out;
  for (const auto& [name, value] : lines) {
    const std::string text = wrapped(value, width + 2);
    out += name + text.substr(std::min(columns_of(name), text.size()));
  }
  return out;
}

std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::istringstream words(text);
  std::string out, line(indent, ' '), word;
  bool empty = true;
  while (words >> word) {
    if (!empty && columns_of(line) + 1 + columns_of(word) > width) {
      out += line + '\n';
      line.assign(indent, ' ');
      empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  return out + line + '\n';
}

}  // namespace evenkeel::cli
