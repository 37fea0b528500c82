#include "remote/object.h"

#include <algorithm>
#include <utility>

#include "base/visible.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "remote/answers.h"
#include "remote/response.h"

namespace evenkeel {
namespace {

Error changed_object(const std::string& url, const std::string& how) {
  return Error(ErrorKind::kFormat, "read", "the object changed since it was opened: " + how)
      .in(url)
      .hint("open it again once nobody writes to it");
}

// The target of a redirect without secrets: no query, no user name, no password.
std::string without_secrets(std::string_view location) {
  location = location.substr(0, location.find_first_of("?#"));
  const std::size_t slashes = location.find("//");
  const std::size_t host = slashes == location.npos ? 0 : slashes + 2;
  const std::size_t at = location.substr(0, location.find('/', host)).rfind('@');
  if (at == location.npos || at < host) return visible(location);
  return visible(std::string(location.substr(0, host)) + std::string(location.substr(at + 1)));
}

// Where a redirect leads. Secrets must not go there: requests for buckets are signed, so they are
// not redirected, and https does not become http.
std::string redirect_target(const std::string& from, const HttpAnswer& answer) {
  const Address base = parse_address(from);
  std::string target = answer.location.empty() ? "" : resolve_reference(base, answer.location);
  const bool safe =
      base.scheme == Scheme::kHttps ? target.starts_with("https://") : target.starts_with("http");
  if (base.is_bucket() || !safe || !is_url(target)) {
    throw Error(ErrorKind::kFormat, "open",
                "the server redirects to " +
                    (answer.location.empty() ? "nowhere" : without_secrets(answer.location)) +
                    ", which is not followed")
        .in(from)
        .hint(base.is_bucket() ? "check the region and the endpoint of the bucket"
                               : "only https may follow https; open the other address yourself");
  }
  return target;
}

}  // namespace

HttpRequest RemoteObject::request(std::uint64_t first, std::uint64_t last, std::byte* into) const {
  HttpRequest request = store->request(address);
  {
    Redirect& redirect = redirect_.get();
    const MutexLock lock(redirect.mutex);
    if (!redirect.url.empty()) request.url = request.redirected_to = redirect.url;
  }
  request.range = ByteRange{first, last};
  request.into = into;
  // A weak ETag never matches in If-Match. The ETag of the answer is compared in any case.
  if (!etag.empty() && !etag.starts_with("W/")) {
    request.headers.push_back("If-Match: " + etag);
    request.etag = etag;
  } else if (!last_modified.empty()) {
    request.headers.push_back("If-Unmodified-Since: " + last_modified);
  }
  return request;
}

// Many requests get the same answer at about the same time. In the next two functions, the first
// one changes the redirect, and late ones leave it as it is then.
void RemoteObject::redirect(const HttpAnswer& answer) const {
  std::string target =
      redirect_target(answer.redirected_to.empty() ? url : answer.redirected_to, answer);
  Redirect& redirect = redirect_.get();
  const MutexLock lock(redirect.mutex);
  if (redirect.url == answer.redirected_to) redirect.url = std::move(target);
}

void RemoteObject::forget_redirect(const HttpAnswer& refused) const {
  Redirect& redirect = redirect_.get();
  const MutexLock lock(redirect.mutex);
  if (redirect.url == refused.redirected_to) redirect.url.clear();
}

std::string RemoteObject::version() const {
  return !etag.empty() ? etag : last_modified + " " + std::to_string(size);
}

std::string RemoteObject::cache_identity() const {
  const bool strong = !etag.empty() && !etag.starts_with("W/");
  if (!strong && last_modified.empty()) return {};
  const RemoteSettings& settings = store->settings();
  std::string identity;
  if (address.scheme == Scheme::kS3) identity = settings.s3_endpoint;
  if (address.scheme == Scheme::kGs) identity = settings.gs_endpoint;
  Address named = address;
  named.query = without_signature(address.query);
  identity += '\0' + named.text() + '\0' + etag;
  if (!strong) identity += '\0' + last_modified;
  return identity;
}

HttpRequest RangeTransfer::request() {
  return object_.request(offset_ + done_, offset_ + length_ - 1, into_ + done_);
}

void RangeTransfer::require_same(const HttpAnswer& answer) const {
  const auto range = parse_content_range(answer.content_range);
  const std::optional<std::uint64_t> total = answer.body == Body::kWholeObject
                                                 ? answer.content_length
                                             : range ? range->total
                                                     : std::nullopt;
  if (total && *total != object_.size) {
    throw changed_object(object_.url, "it had " + with_commas(object_.size) +
                                          " bytes, now it has " + with_commas(*total));
  }
  if (!object_.etag.empty() && !answer.etag.empty() && answer.etag != object_.etag) {
    throw changed_object(object_.url, "its ETag was " + visible(object_.etag) + ", now it is " +
                                          visible(answer.etag));
  }
  const bool by_date = object_.etag.empty() || answer.etag.empty();
  if (by_date && !object_.last_modified.empty() && !answer.last_modified.empty() &&
      answer.last_modified != object_.last_modified) {
    throw changed_object(object_.url, "it was written " + visible(answer.last_modified));
  }
}

Transfer::Outcome RangeTransfer::judge(HttpAnswer& answer, std::string& reason) {
  if (may_pass(answer, object_.url, reason)) return Outcome::kRetry;
  const std::uint64_t asked_last = offset_ + length_ - 1;
  switch (answer.body) {
    case Body::kRange:
    case Body::kWholeObject: {
      require_same(answer);
      const std::uint64_t end = answer.first + answer.written;
      if (end > offset_ + done_) done_ = end - offset_;
      if (done_ == length_) return Outcome::kDone;
      reason =
          answer.failure.empty() ? "the server sent fewer bytes than requested" : answer.failure;
      return Outcome::kRetry;
    }
    case Body::kIgnoresRange:
      throw Error(ErrorKind::kFormat, "read",
                  "the server ignores ranges: the request was for bytes " +
                      std::to_string(answer.first) + "-" + std::to_string(asked_last) +
                      ", but it sent all of the object")
          .in(object_.url)
          .hint("download the file, or use a server that answers range requests");
    case Body::kOtherBytes:
      throw Error(ErrorKind::kFormat, "read",
                  "requested bytes " + std::to_string(answer.first) + "-" +
                      std::to_string(asked_last) + ", but the server answered with \"" +
                      visible(answer.content_range) + "\"")
          .in(object_.url)
          .at(answer.first)
          .hint("the server, or a proxy in front of it, is faulty");
    case Body::kCompressed:
      throw compressed_object("read", object_.url, answer);
    case Body::kNone:
    case Body::kText:
      break;
  }
  if (answer.status == 412) throw changed_object(object_.url, "the server says 412");
  if (answer.status == 416) throw changed_object(object_.url, "it is shorter now");
  if (learnt_something(answer, *object_.store, renewals_)) return Outcome::kAgain;
  if (is_redirect(answer.status) && renewals_++ < kMostRedirects) {
    object_.redirect(answer);
    return Outcome::kAgain;
  }
  // The target of a redirect may have expired: go back to the original address.
  if (!answer.redirected_to.empty() && answer.status >= 400 && answer.status <= 410 &&
      renewals_++ < kMostRenewals) {
    object_.forget_redirect(answer);
    return Outcome::kAgain;
  }
  throw_refused(answer, object_.url, *object_.store, "read");
}

}  // namespace evenkeel
