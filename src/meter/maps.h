// Behind files_in_use of meter.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace evenkeel {

// One line of /proc/PID/maps that has a file behind it.
struct MappedFile {
  bool program = false;  // mapped with execute permission
  std::uint64_t inode = 0;
  std::string_view path;  // as the kernel writes it: a newline is \012, and so is a real "\012"
};

// Empty for anonymous memory, [heap] and its like, and for what is no such line.
std::optional<MappedFile> parse_maps_line(std::string_view line);

// A newline for each \012.
std::string unescape_newlines(std::string_view path);

}  // namespace evenkeel
