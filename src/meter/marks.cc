#include "meter/marks.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "base/text_file.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::size_t kLongestLine = 1024;  // every mark is shorter

// Removes a number and the blank after it from the beginning of the line.
std::optional<std::uint64_t> take_number(std::string_view& line) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc{} || end == line.data() + line.size() || *end != ' ') return std::nullopt;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()) + 1);
  return number;
}

}  // namespace

MarkText clean_mark_text(std::string_view text) noexcept {
  MarkText out;
  out.size = std::min(text.size(), kMostMarkText);
  const auto inside_character = [&] { return (text[out.size] & 0xC0) == 0x80; };
  if (out.size < text.size()) {
    for (int step = 0; step < 3 && inside_character(); ++step) --out.size;
    if (inside_character()) out.size = kMostMarkText;  // this is not UTF-8
  }
  for (std::size_t i = 0; i < out.size; ++i) {
    const bool control = (text[i] >= 0 && text[i] < ' ') || text[i] == 0x7F;
    out.bytes[i] = control ? ' ' : text[i];
  }
  return out;
}

std::optional<Mark> parse_mark(std::string_view line) {
  const auto nanoseconds = take_number(line);
  if (!nanoseconds || *nanoseconds > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
  const auto pid = take_number(line);
  if (!pid || *pid == 0 || *pid > std::numeric_limits<pid_t>::max()) return std::nullopt;
  return Mark{*nanoseconds, static_cast<pid_t>(*pid), std::string(clean_mark_text(line).view())};
}

MarkFile::MarkFile() {
  std::error_code failed;
  auto folder = std::filesystem::temp_directory_path(failed);
  if (failed) folder = "/tmp";
  // A program that changes its working folder must still find it.
  path_ = std::filesystem::absolute(folder / "evenkeel-marks-XXXXXX").string();
  fd_ = Fd(::mkostemp(path_.data(), O_CLOEXEC));
  if (!fd_) {
    throw Error::system("create a file for marks", errno)
        .in(path_)
        .hint("set TMPDIR to a writable folder");
  }
}

MarkFile::~MarkFile() { ::unlink(path_.c_str()); }

std::vector<Mark> MarkFile::read_new() {
  std::vector<Mark> marks;
  struct stat status;
  if (sys::fstat(fd_.get(), &status) != 0) return marks;
  // Read up to the current end only, so that a program that keeps writing does not block the
  // reader.
  const auto end = static_cast<std::uint64_t>(status.st_size);
  char buffer[16384];
  while (offset_ < end) {
    const ssize_t got = sys::pread(fd_.get(), buffer,
                                   std::min<std::uint64_t>(sizeof buffer, end - offset_), offset_);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    offset_ += static_cast<std::uint64_t>(got);
    rest_.append(buffer, static_cast<std::size_t>(got));
    take_lines(marks);
  }
  return marks;
}

void MarkFile::take_lines(std::vector<Mark>& out) {
  std::size_t begin = 0;
  for (std::size_t end; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    auto mark = parse_mark(std::string_view(rest_).substr(begin, end - begin));
    if (!mark) continue;
    if (kept_ == kMost) {
      ++dropped_;
      continue;
    }
    ++kept_;
    out.push_back(std::move(*mark));
  }
  rest_.erase(0, begin);
  if (rest_.size() > kLongestLine)
    rest_.resize(kLongestLine);  // garbage; skipped up to its newline
}

}  // namespace evenkeel
