// Both ends of evenkeel::mark: the file that a profiler makes, and the lines in it.
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
// Marks are for moments, not for a log: a file that has grown this large takes no more.
inline constexpr std::uint64_t kMostMarkFile = std::uint64_t{16} << 20;

struct Mark {
  std::uint64_t nanoseconds = 0;  // CLOCK_MONOTONIC
  pid_t pid = 0;                  // as the program knows it
  std::string text;
};

// What is written of a text: at most kMostMarkText bytes, cut between characters, on one line.
struct MarkText {
  std::array<char, kMostMarkText> bytes;
  std::size_t size;
  std::string_view view() const { return {bytes.data(), size}; }
};
MarkText clean_mark_text(std::string_view text) noexcept;

// "<nanoseconds> <pid> <text>", without the newline. Empty for what is no such line.
std::optional<Mark> parse_mark(std::string_view line);

// A file of the profiler's own, to be named to a program in kMarksVariable; gone when this goes.
// Programs of the same user can write to it. One thread at a time.
class MarkFile {
 public:
  static constexpr std::size_t kMost = 1000;  // marks in all

  MarkFile();  // throws Error (kSystem)
  ~MarkFile();
  MarkFile(const MarkFile&) = delete;
  MarkFile& operator=(const MarkFile&) = delete;

  const std::string& path() const { return path_; }
  // Marks that came since the last call. Lines that are no marks are passed over.
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
