#include "cli/describe.h"

#include <fmt/core.h>

#include <cmath>

#include "base/visible.h"
#include "evenkeel/bytes.h"

namespace evenkeel::cli {

std::string describe_shape(const std::vector<std::uint64_t>& shape) {
  std::string text;
  for (std::uint64_t length : shape) text += (text.empty() ? "" : " × ") + with_commas(length);
  return text.empty() ? "one value" : text;
}

std::string describe(const Array& array) {
  return fmt::format("{} {}, {}, {}", describe_shape(array.shape()), array.dtype().name(),
                     format_size(array.bytes()), array.format());
}

std::string counted(std::uint64_t count, const std::string& what, const std::string& many) {
  return with_commas(count) + " " + what + (count == 1 ? "" : many);
}

std::string describe_rate(double per_second) {
  if (per_second < 10) return fmt::format("{:.1f}", per_second);
  return with_commas(static_cast<std::uint64_t>(std::llround(per_second)));
}

std::string describe_ratio(double ratio) {
  if (ratio >= 10) return describe_rate(ratio);
  return ratio >= 1 ? fmt::format("{:.1f}", ratio) : fmt::format("{:.2g}", ratio);
}

std::string size_or_unknown(std::optional<std::uint64_t> bytes) {
  return bytes ? format_size(*bytes) : "unknown";
}

std::string describe_files(const std::vector<std::string>& paths) {
  std::string first = visible(paths.front());
  if (paths.size() == 1) return first;
  return fmt::format("{} and {} more", first, with_commas(paths.size() - 1));
}

}  // namespace evenkeel::cli
