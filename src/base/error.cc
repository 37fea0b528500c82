#include "evenkeel/error.h"

#include <system_error>
#include <utility>

#include "base/visible.h"

namespace evenkeel {

Error::Error(ErrorKind kind, std::string operation, std::string problem)
    : kind_(kind), operation_(std::move(operation)), problem_(std::move(problem)) {
  compose();
}

Error Error::system(std::string operation, int code, std::string problem) {
  const std::string words = std::generic_category().message(code);
  Error error(ErrorKind::kSystem, std::move(operation),
              problem.empty() ? words : std::move(problem) + ": " + words);
  error.code_ = code;
  return error;
}

Error&& Error::in(std::string path) && {
  path_ = without_query(std::move(path));
  compose();
  return std::move(*this);
}

Error&& Error::at(std::uint64_t offset) && {
  offset_ = offset;
  compose();
  return std::move(*this);
}

Error&& Error::hint(std::string what_to_do) && {
  hint_ = std::move(what_to_do);
  compose();
  return std::move(*this);
}

void Error::compose() {
  message_ = operation_;
  // A path may contain any bytes. Escaped, it stays on one line and cannot control a terminal.
  if (!path_.empty()) message_ += " " + visible(path_);
  message_ += ": " + visible(problem_, "\n");
  if (offset_) message_ += " (at byte " + std::to_string(*offset_) + ")";
  if (!hint_.empty()) message_ += "\nhint: " + visible(hint_, "\n");
}

}  // namespace evenkeel
