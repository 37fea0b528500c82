#include "meter/maps.h"

#include <algorithm>

#include "base/text_file.h"

namespace evenkeel {

// 7f0000000000-7f0000200000 r--s 00000000 fe:00 1234                       /data/train.bin
std::optional<MappedFile> parse_maps_line(std::string_view line) {
  std::string_view words[5];  // range, permissions, offset, device, inode
  for (std::string_view& word : words) {
    word = line.substr(0, line.find(' '));
    if (word.empty() || word.size() == line.size()) return std::nullopt;
    line.remove_prefix(word.size() + 1);
  }
  const auto inode = leading_number(words[4]);
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));  // a path begins with /
  if (words[1].size() != 4 || !inode || *inode == 0 || !line.starts_with('/')) return std::nullopt;
  return MappedFile{words[1][2] == 'x', *inode, line};
}

std::string unescape_newlines(std::string_view path) {
  std::string out(path);
  for (std::size_t at = 0; (at = out.find("\\012", at)) != std::string::npos; ++at) {
    out.replace(at, 4, "\n");
  }
  return out;
}

}  // namespace evenkeel
