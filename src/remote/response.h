// Parsers for header fields and error texts of servers. Their input is not trusted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "remote/http.h"

namespace evenkeel {

// "bytes 0-4095/123456" or "bytes */0".
struct ContentRange {
  std::optional<ByteRange> range;      // empty for "*"
  std::optional<std::uint64_t> total;  // empty for "*"
};
std::optional<ContentRange> parse_content_range(std::string_view value);

// What kind of body follows these header fields.
Body judge_body(const HttpRequest& request, const HttpAnswer& answer);

// The seconds that a server asks clients to wait. Dates are ignored.
std::optional<double> parse_retry_after(std::string_view value);

// A number without a sign, with nothing after it.
std::optional<std::uint64_t> parse_count(std::string_view text);

// Parses one header line. Stores the fields that matter in the answer.
void take_header(std::string_view line, HttpAnswer& answer);

// The error that a storage service describes in XML: <Error><Code>..</Code><Message>..</Message>.
struct ServiceError {
  std::string code, message;  // both are cut if they are long

  std::string words() const;  // "AccessDenied (...)", safe to display; empty if there are none
};
ServiceError parse_service_error(std::string_view xml);
// "says 403 AccessDenied (...)": the status and what the service wrote, safe to display.
std::string describe_refusal(const HttpAnswer& answer);

}  // namespace evenkeel
