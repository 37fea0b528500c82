// What servers say in header fields and error texts. Nothing in it is trusted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "remote/http.h"

namespace evenkeel {

// "bytes 0-4095/123456" or "bytes */0".
struct ContentRange {
  std::optional<ByteRange> range;      // not there for "*"
  std::optional<std::uint64_t> total;  // not there for "*"
};
std::optional<ContentRange> parse_content_range(std::string_view value);

// What kind of body follows these header fields.
Body judge_body(const HttpRequest& request, const HttpAnswer& answer);

// Seconds to wait as a server asks for it: a number. Dates are ignored.
std::optional<double> parse_retry_after(std::string_view value);

// A number without a sign, and nothing behind it.
std::optional<std::uint64_t> parse_count(std::string_view text);

// One line of a header: puts the fields that matter into the answer.
void take_header(std::string_view line, HttpAnswer& answer);

// The error that a storage service describes in XML: <Error><Code>..</Code><Message>..</Message>.
struct ServiceError {
  std::string code, message;
};
ServiceError parse_service_error(std::string_view xml);

}  // namespace evenkeel
