// Both sides of evenkeel::mark: the file that a profiler creates, and the lines in it.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace evenkeel {

inline constexpr char kMarksVariable[] = "EVENKEEL_MARKS";
inline constexpr std::size_t kMostMarkText = 200;  // bytes
// No marks are added to a file that has reached this size: marks are not meant for logging.
inline constexpr std::uint64_t kMostMarkFile = std::uint64_t{16} << 20;

struct Mark {
  std::uint64_t nanoseconds = 0;  // CLOCK_MONOTONIC
  pid_t pid = 0;                  // as getpid() of the program returns it
  std::string text;
};

// The text of a mark as it is written: at most kMostMarkText bytes, cut between characters, on one
// line.
struct MarkText {
  std::array<char, kMostMarkText> bytes;
  std::size_t size;
  std::string_view view() const { return {bytes.data(), size}; }
};
MarkText clean_mark_text(std::string_view text) noexcept;

// Parses "<nanoseconds> <pid> <text>", without the newline. Empty for any other line.
std::optional<Mark> parse_mark(std::string_view line);

// A file that the profiler creates. Its path is passed to a program in kMarksVariable. Programs of
// the same user can write to it. The destructor deletes it. Not thread-safe.
class MarkFile {
 public:
  static constexpr std::size_t kMost = 1000;  // marks in all

  MarkFile();  // throws Error (kSystem)
  ~MarkFile();
  MarkFile(const MarkFile&) = delete;
  MarkFile& operator=(const MarkFile&) = delete;

  const std::string& path() const { return path_; }
  // Returns the marks written since the last call. Skips lines that are not marks.
  std::vector<Mark> read_new();
  std::uint64_t dropped() const { return dropped_; }  // marks beyond kMost

 private:
  void take_lines(std::vector<Mark>& out);

  std::string path_;
  Fd fd_;
  std::uint64_t offset_ = 0;
  std::string rest_;  // a line that has no end yet
  std::size_t kept_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace evenkeel
