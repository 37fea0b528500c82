// Input from servers (header fields, error texts, listings) and from users (URLs, profiles).
#include "evenkeel/error.h"
#include "fuzz/target.h"
#include "remote/address.h"
#include "remote/credentials.h"
#include "remote/listing.h"
#include "remote/response.h"
#include "remote/xml.h"

namespace evenkeel::fuzz {
namespace {

FUZZ_TARGET(remote) {
  const std::string text(input.rest());
  if (const auto range = parse_content_range(text); range && range->range) {
    MUST(range->range->first <= range->range->last);
    MUST(!range->total || range->range->last < *range->total);
  }
  HttpAnswer answer;
  answer.status = 206;
  take_header(text, answer);
  HttpRequest request;
  request.range = ByteRange{0, 9};
  if (judge_body(request, answer) == Body::kRange) {
    const auto range = parse_content_range(answer.content_range);
    MUST(range->range->first == 0 && range->range->last <= 9);
  }
  const ServiceError service = parse_service_error(text);
  MUST(service.code.size() <= 64 && service.message.size() <= 300);
  try {
    const ListingPage page = parse_listing(text);
    for (const std::string& key : page.keys) MUST(key.size() <= text.size());
  } catch (const XmlError&) {
  } catch (const Error& error) {
    MUST(error.kind() == ErrorKind::kFormat);
  }
  try {
    const Address address = parse_address(text);
    MUST(is_url(text) && !address.host.empty());
    if (address.is_bucket()) MUST(address.text() == text || address.path.empty());
  } catch (const Error& error) {
    MUST(error.kind() == ErrorKind::kInvalid);
  }
  MUST(percent_decode(percent_encode(text, true)) == text);
  MUST(profile_setting(text, "default", "region").size() <= text.size());
}

}  // namespace
}  // namespace evenkeel::fuzz
