#include "remote/response.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/visible.h"
#include "remote/xml.h"

namespace evenkeel {
namespace {

std::string_view trim_blanks(std::string_view text) {
  while (!text.empty() && static_cast<unsigned char>(text.front()) <= ' ') text.remove_prefix(1);
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

// Other values occur that change no byte: "identity", "aws-chunked", and by mistake "utf-8".
bool is_compression(std::string_view content_encoding) {
  constexpr std::array<std::string_view, 7> kCompressions = {
      "gzip", "x-gzip", "deflate", "compress", "x-compress", "br", "zstd"};
  std::string_view rest = content_encoding;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string name = lower(trim_blanks(rest.substr(0, comma)));
    if (std::ranges::find(kCompressions, name) != kCompressions.end()) return true;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return false;
}

}  // namespace

std::optional<std::uint64_t> parse_count(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || error != std::errc() || stopped != end) return std::nullopt;
  return number;
}

std::optional<ContentRange> parse_content_range(std::string_view value) {
  value = trim_blanks(value);
  if (!lower(value.substr(0, 6)).starts_with("bytes ")) return std::nullopt;
  value = trim_blanks(value.substr(6));
  const std::size_t slash = value.find('/');
  if (slash == value.npos) return std::nullopt;
  ContentRange result;
  const std::string_view range = value.substr(0, slash), total = value.substr(slash + 1);
  if (total != "*") {
    result.total = parse_count(total);
    if (!result.total) return std::nullopt;
  }
  if (range != "*") {
    const std::size_t dash = range.find('-');
    if (dash == range.npos) return std::nullopt;
    const auto first = parse_count(range.substr(0, dash));
    const auto last = parse_count(range.substr(dash + 1));
    if (!first || !last || *first > *last || *last == UINT64_MAX) return std::nullopt;
    if (result.total && *last >= *result.total) return std::nullopt;
    result.range = ByteRange{*first, *last};
  }
  return result;
}

Body judge_body(const HttpRequest& request, const HttpAnswer& answer) {
  if (answer.status < 200 || answer.status > 299 || !request.range) return Body::kText;
  if (is_compression(answer.content_encoding)) return Body::kCompressed;
  const ByteRange& asked = *request.range;
  if (!answer.content_range.empty()) {
    const auto said = parse_content_range(answer.content_range);
    const bool fits =
        said && said->range && said->range->first == asked.first && said->range->last <= asked.last;
    return fits ? Body::kRange : Body::kOtherBytes;
  }
  if (answer.status == 206) return Body::kOtherBytes;  // it does not say which bytes
  const bool whole = asked.first == 0 && answer.content_length &&
                     *answer.content_length <= asked.last - asked.first + 1;
  return whole ? Body::kWholeObject : Body::kIgnoresRange;
}

std::optional<double> parse_retry_after(std::string_view value) {
  const auto seconds = parse_count(trim_blanks(value));
  if (!seconds) return std::nullopt;
  return static_cast<double>(std::min<std::uint64_t>(*seconds, 3600));
}

void take_header(std::string_view line, HttpAnswer& answer) {
  if (line.starts_with("HTTP/")) {  // a new answer: drop the fields of interim ones
    answer.etag.clear(), answer.last_modified.clear(), answer.content_range.clear();
    answer.content_encoding.clear(), answer.location.clear(), answer.retry_after.clear();
    answer.region.clear();
    answer.content_length.reset();
    return;
  }
  const std::size_t colon = line.find(':');
  if (colon == line.npos || colon > 64) return;
  constexpr std::size_t kMostValue = 4096;
  const std::string name = lower(line.substr(0, colon));
  const std::string_view whole = trim_blanks(line.substr(colon + 1));
  const std::string_view value = whole.substr(0, kMostValue);
  if (name == "etag") answer.etag = value;
  if (name == "last-modified") answer.last_modified = value;
  if (name == "content-range") answer.content_range = value;
  if (name == "content-encoding") answer.content_encoding = value;
  if (name == "content-length") answer.content_length = parse_count(value);
  // A part of an address would be another address. libcurl limits the length of a line.
  if (name == "location") answer.location = whole;
  if (name == "retry-after") answer.retry_after = value;
  if (name == "x-amz-bucket-region") answer.region = value;
}

ServiceError parse_service_error(std::string_view xml) {
  ServiceError error;
  try {
    XmlReader reader(xml);
    while (reader.next()) {
      if (reader.path().ends_with("Error/Code")) error.code = reader.text();
      if (reader.path().ends_with("Error/Message")) error.message = reader.text();
    }
  } catch (const XmlError&) {  // not XML: the fields stay empty
  }
  constexpr std::size_t kMostWords = 300;
  error.code.resize(std::min<std::size_t>(error.code.size(), 64));
  error.message.resize(std::min(error.message.size(), kMostWords));
  return error;
}

std::string ServiceError::words() const {
  std::string words = visible(code);
  if (!message.empty()) words += (words.empty() ? "(" : " (") + visible(message) + ")";
  return words;
}

std::string describe_refusal(const HttpAnswer& answer) {
  const std::string words = parse_service_error(answer.text).words();
  return "says " + std::to_string(answer.status) + (words.empty() ? "" : " " + words);
}

}  // namespace evenkeel
