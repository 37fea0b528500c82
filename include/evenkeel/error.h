// The one exception class that Evenkeel throws.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "evenkeel/compiler.h"

#pragma GCC visibility push(default)

namespace evenkeel {

enum class ErrorKind {
  kInvalid,  // an argument is not valid (Python: ValueError)
  kFormat,   // a file is not what it claims to be (ValueError)
  kIndex,    // a row is outside the array (IndexError)
  kBudget,   // the request cannot fit the budget (MemoryError)
  kSystem,   // a system call failed; code() is the errno (OSError and its subclasses)
  kClosed,   // used after close, or in a process that does not own it (ValueError)
};

// What went wrong, where, with which numbers, and what to do. Built in place:
//   throw Error(ErrorKind::kFormat, "open", "header says 12 bytes, the file has 10")
//       .in(path).at(8).hint("the download may be incomplete");
// what() reads "open PATH: header says 12 bytes, the file has 10 (at byte 8)\nhint: ...".
// Control characters and bytes that are not UTF-8 appear in it as \xNN; path() is unchanged.
class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string operation, std::string problem);
  // kSystem, from errno: the problem ends with the system's text for it.
  static Error system(std::string operation, int code, std::string problem = "");

  Error&& in(std::string path) &&;
  Error&& at(std::uint64_t offset) &&;
  Error&& hint(std::string what_to_do) &&;

  const char* what() const noexcept override { return message_.c_str(); }
  ErrorKind kind() const noexcept { return kind_; }
  const std::string& operation() const noexcept { return operation_; }
  const std::string& path() const noexcept { return path_; }
  std::optional<std::uint64_t> offset() const noexcept { return offset_; }
  int code() const noexcept { return code_; }  // errno, or 0
  const std::string& hint_text() const noexcept { return hint_; }

 private:
  void compose();

  ErrorKind kind_;
  int code_ = 0;
  std::string operation_, problem_, path_, hint_;
  std::optional<std::uint64_t> offset_;
  std::string message_;
};

}  // namespace evenkeel

#pragma GCC visibility pop
