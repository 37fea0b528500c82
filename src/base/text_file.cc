#include "base/text_file.h"

#include <cerrno>

#include "base/fd.h"

namespace evenkeel {

std::optional<std::string> read_text_file(const std::string& path) {
  const Fd fd(sys::open(path.c_str(), O_RDONLY));
  if (!fd) return std::nullopt;
  std::string text;
  char piece[4096];
  for (;;) {
    const ssize_t got = sys::read_text(fd.get(), piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) return text;
    text.append(piece, static_cast<std::size_t>(got));
  }
}

std::optional<std::uint64_t> number_after(std::string_view text, std::string_view key) {
  std::string_view line;
  while (take_line(text, line)) {
    if (!line.starts_with(key)) continue;
    const std::string_view rest = line.substr(key.size());
    // A blank must follow the key, so that "file" does not match "file_mapped".
    if (!rest.empty() && (rest[0] == ' ' || rest[0] == '\t')) return leading_number(rest);
  }
  return std::nullopt;
}

}  // namespace evenkeel
