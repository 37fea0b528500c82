#include "remote/object.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/visible.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "remote/response.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kHead = 4096;  // read at open; holds nearly every header
constexpr unsigned kMostRenewals = 2;  // of credentials, and of expired redirects

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

Error changed_object(const std::string& url, const std::string& how) {
  return Error(ErrorKind::kFormat, "read", "the object changed since it was opened: " + how)
      .in(url)
      .hint("open it again once nobody writes to it");
}

std::string said(const HttpAnswer& answer) {
  const ServiceError error = parse_service_error(answer.text);
  std::string words = "the server says " + std::to_string(answer.status);
  if (!error.code.empty()) words += " " + error.code;
  if (!error.message.empty()) words += " (" + visible(error.message) + ")";
  return words;
}

// Whether a request may succeed if it is repeated: the server named the bucket's region, or the
// credentials had expired and there are new ones.
bool learnt_something(const HttpAnswer& answer, Store& store, unsigned& renewals) {
  if (store.learn_region(answer.region)) return true;
  const bool refused = answer.status == 400 || answer.status == 401 || answer.status == 403;
  // Another request has learnt it meanwhile. (Requests that are not signed have no generation.)
  const bool old = answer.generation != 0 && answer.generation < store.generation();
  if (old && (refused || is_redirect(answer.status))) return true;
  if (!refused) return false;
  const std::string code = parse_service_error(answer.text).code;
  const bool expired =
      code == "ExpiredToken" || code == "TokenRefreshRequired" || answer.status == 401;
  return expired && renewals++ < kMostRenewals && store.renew_credentials();
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
  const std::string target =
      answer.location.empty() ? "" : resolve_reference(base, answer.location);
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

Error compressed_object(const char* operation, const std::string& url, const HttpAnswer& answer) {
  return Error(ErrorKind::kFormat, operation,
               "the server sends the object compressed (Content-Encoding: " +
                   visible(answer.content_encoding) + ")")
      .in(url)
      .hint("turn this compression off at the server or the proxy, or store the object without it");
}

// Reads the first bytes of an object and, from the header fields, its size and version.
class HeadTransfer final : public Transfer {
 public:
  explicit HeadTransfer(std::shared_ptr<RemoteObject> object) : object_(std::move(object)) {
    object_->head.resize(kHead);
  }
  HttpRequest request() override {
    return object_->request(0, kHead - 1, reinterpret_cast<std::byte*>(object_->head.data()));
  }
  std::string path() const override { return object_->url; }
  bool found() const { return found_; }
  HttpAnswer& answer() { return answer_; }

  Outcome judge(HttpAnswer& answer, std::string& reason) override {
    if (may_pass(answer, object_->url, reason)) return Outcome::kRetry;
    if (answer.body == Body::kRange || answer.body == Body::kWholeObject)
      return take(answer, reason);
    if (answer.body == Body::kIgnoresRange) {
      throw Error(ErrorKind::kFormat, "open",
                  "the server ignores ranges: the request was for the first " + with_commas(kHead) +
                      " bytes, but it sent " +
                      (answer.content_length ? "all " + with_commas(*answer.content_length)
                                             : std::string("all of the object")))
          .in(object_->url)
          .hint("download the file, or use a server that answers range requests");
    }
    if (answer.body == Body::kOtherBytes) {
      throw Error(ErrorKind::kFormat, "open",
                  "requested bytes 0-" + std::to_string(kHead - 1) +
                      ", but the server answered with \"" + visible(answer.content_range) + "\"")
          .in(object_->url);
    }
    if (answer.body == Body::kCompressed) throw compressed_object("open", object_->url, answer);
    if (answer.status == 416) {  // the object is empty
      const auto range = parse_content_range(answer.content_range);
      if (range && range->total.value_or(0) > 0) {
        throw Error(ErrorKind::kFormat, "open",
                    "requested the first bytes, but the server answers that there are none (416) "
                    "in an object of " +
                        with_commas(*range->total) + " bytes")
            .in(object_->url)
            .hint("the server, or a proxy in front of it, is faulty");
      }
      object_->head.clear();
      object_->etag = answer.etag;
      found_ = true;
      return Outcome::kDone;
    }
    if (learnt_something(answer, *object_->store, renewals_)) return Outcome::kAgain;
    if (is_redirect(answer.status) && redirects_++ < 5) {
      object_->redirect(answer);
      return Outcome::kAgain;
    }
    answer_ = std::move(answer);
    return Outcome::kDone;  // not found
  }

 private:
  Outcome take(HttpAnswer& answer, std::string& reason) {
    if (!answer.failure.empty()) {
      reason = answer.failure;
      return Outcome::kRetry;
    }
    object_->size = answer.written;
    if (answer.body == Body::kRange) {
      const auto range = parse_content_range(answer.content_range);
      if (!range || !range->total) {
        throw Error(ErrorKind::kFormat, "open", "the server does not say how long the object is")
            .in(object_->url);
      }
      object_->size = *range->total;
      if (answer.written < std::min(kHead, object_->size)) {
        reason = "the body ended after " + std::to_string(answer.written) + " bytes";
        return Outcome::kRetry;
      }
    }
    object_->head.resize(answer.written);
    object_->etag = answer.etag;
    object_->last_modified = answer.last_modified;
    found_ = true;
    return Outcome::kDone;
  }

  const std::shared_ptr<RemoteObject> object_;
  HttpAnswer answer_;
  unsigned renewals_ = 0, redirects_ = 0;
  bool found_ = false;
};

thread_local RemoteOpening* current_opening = nullptr;

}  // namespace

bool may_pass(const HttpAnswer& answer, const std::string& url, std::string& reason) {
  if (answer.hopeless) {
    throw Error::system("open", EPROTO, visible(answer.failure))
        .in(url)
        .hint(answer.untrusted ? "certificates are always checked; SSL_CERT_FILE can name a file "
                                 "with those to trust"
                               : "check the spelling of the address");
  }
  const bool busy = answer.status == 408 || answer.status == 429 || answer.status == 500 ||
                    answer.status == 502 || answer.status == 503 || answer.status == 504;
  // S3 answers this if nothing arrived for a while, for example in the middle of an upload.
  const bool idle =
      answer.status == 400 && parse_service_error(answer.text).code == "RequestTimeout";
  // An answer may also break off between its header fields and its body.
  if (answer.status == 0 || (answer.body == Body::kNone && !answer.failure.empty())) {
    reason = answer.failure.empty() ? "no answer" : visible(answer.failure);
    return true;
  }
  if (busy || idle) {
    reason = said(answer);
    return true;
  }
  return false;
}

void throw_refused(const HttpAnswer& answer, const std::string& url, const Store& store,
                   const char* operation) {
  const int code = answer.status == 404 || answer.status == 410   ? ENOENT
                   : answer.status == 401 || answer.status == 403 ? EACCES
                                                                  : EIO;
  std::string hint = "check the spelling";
  if (code == EACCES) {
    hint = store.signs() ? std::string("check that these keys may ") +
                               (operation == std::string_view("write") ? "write" : "read") +
                               " the object; the request used " + store.describe()
                         : "requests were " + store.describe();
    if (url.starts_with("http")) hint = "a presigned URL may have expired";
  } else if (code == EIO) {
    hint = "the request was " + store.describe();
  }
  throw Error::system(operation, code, said(answer)).in(url).hint(hint);
}

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

std::string RemoteObject::read(std::uint64_t offset, std::size_t length) const {
  const std::uint64_t rest = offset < size ? size - offset : 0;
  const std::uint64_t wanted = std::min<std::uint64_t>(length, rest);
  if (wanted == 0) return {};
  if (offset + wanted <= head.size()) return head.substr(offset, wanted);
  std::string bytes(wanted, '\0');
  RangeTransfer transfer(*this, offset, wanted, reinterpret_cast<std::byte*>(bytes.data()));
  if (RemoteOpening* opening = RemoteOpening::current()) {
    opening->transfers().run(transfer);
  } else {
    RemoteOpening own;
    own.transfers().run(transfer);
  }
  return bytes;
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
  if (is_redirect(answer.status) && renewals_++ < 5) {
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

Transfer::Outcome TextTransfer::judge(HttpAnswer& answer, std::string& reason) {
  if (may_pass(answer, url_, reason)) return Outcome::kRetry;
  if (!answer.failure.empty()) {
    reason = answer.failure;
    return Outcome::kRetry;
  }
  if (answer.status >= 200 && answer.status <= 299) {
    text_ = std::move(answer.text);
    return Outcome::kDone;
  }
  if (store_ && learnt_something(answer, *store_, renewals_)) return Outcome::kAgain;
  if (!store_) throw Error::system(operation_, EPROTO, said(answer)).in(url_);
  throw_refused(answer, url_, *store_, operation_);
}

RemoteOpening* RemoteOpening::current() { return current_opening; }

RemoteOpening::RemoteOpening() : outer_(current_opening) { current_opening = this; }

RemoteOpening::RemoteOpening(const std::vector<std::string>& urls) : RemoteOpening() {
  try {
    look_up(urls);
  } catch (...) {
    current_opening = outer_;
    throw;
  }
}

RemoteOpening::~RemoteOpening() { current_opening = outer_; }

Transfers& RemoteOpening::transfers() {
  if (outer_) return outer_->transfers();
  if (!transfers_) {
    const RemoteSettings settings = RemoteSettings::from_environment();
    constexpr unsigned kMostAtOpen = 16;
    transfers_ =
        std::make_unique<Transfers>(settings, std::min(settings.connections, kMostAtOpen), totals_);
  }
  return *transfers_;
}

std::shared_ptr<Store> RemoteOpening::store_of(const Address& address) {
  if (outer_) return outer_->store_of(address);
  const std::string key = std::to_string(static_cast<int>(address.scheme)) + address.host;
  std::shared_ptr<Store>& store = stores_[key];
  if (!store) store = std::make_shared<Store>(address, RemoteSettings::from_environment());
  return store;
}

void RemoteOpening::look_up(const std::vector<std::string>& urls) {
  if (outer_) return outer_->look_up(urls);
  struct Asked {
    std::shared_ptr<RemoteObject> object;
    std::unique_ptr<HeadTransfer> transfer;
  };
  std::vector<Asked> asked;
  for (const std::string& url : urls) {
    if (!is_url(url) || found_.contains(url)) continue;
    auto object = std::make_shared<RemoteObject>();
    object->url = url;
    object->address = parse_address(url);
    if (object->address.is_bucket() && object->address.path.empty()) {
      throw Error(ErrorKind::kInvalid, "open", "the URL names a bucket, but no object in it")
          .in(url)
          .hint("write s3://bucket/key, or a pattern: s3://bucket/*.npy");
    }
    object->store = store_of(object->address);
    found_[url];  // so that a URL that is listed twice is requested once
    asked.push_back({object, std::make_unique<HeadTransfer>(object)});
  }
  if (asked.empty()) return;
  Transfers& transfers = this->transfers();
  constexpr std::size_t kTogether = 16;
  std::vector<Transfer*> done;
  try {
    for (std::size_t next = 0; next < asked.size() || transfers.active() > 0;) {
      while (next < asked.size() && transfers.active() < kTogether) {
        transfers.start(*asked[next++].transfer);
      }
      transfers.wait(1000, done);
    }
  } catch (...) {
    transfers.cancel_all();
    for (const Asked& one : asked) found_.erase(one.object->url);
    throw;
  }
  for (Asked& one : asked) {
    Found& found = found_[one.object->url];
    if (one.transfer->found()) {
      found.object = one.object;
    } else {
      found.missing = std::move(one.transfer->answer());
    }
  }
}

const RemoteOpening::Found& RemoteOpening::look(const std::string& url) {
  look_up({url});
  return found_[url];
}

std::shared_ptr<const RemoteObject> RemoteOpening::find(const std::string& url) {
  if (outer_) return outer_->find(url);
  const Found& found = look(url);
  if (found.object) return found.object;
  // An object that may not be read counts as missing, as with files. If the caller may not list the
  // bucket, services also answer 403 for a key that does not exist.
  const int status = found.missing.status;
  if (status == 404 || status == 403 || status == 410 || status == 401) return nullptr;
  throw_refused(found.missing, url, *store_of(parse_address(url)), "open");
}

std::shared_ptr<const RemoteObject> RemoteOpening::get(const std::string& url) {
  if (outer_) return outer_->get(url);
  const Found& found = look(url);
  if (found.object) return found.object;
  throw_refused(found.missing, url, *store_of(parse_address(url)), "open");
}

std::shared_ptr<const RemoteObject> open_object(const std::string& url) {
  if (RemoteOpening* opening = RemoteOpening::current()) return opening->get(url);
  RemoteOpening own;
  return own.get(url);
}

bool object_exists(const std::string& url) {
  if (RemoteOpening* opening = RemoteOpening::current()) return opening->find(url) != nullptr;
  RemoteOpening own;
  return own.find(url) != nullptr;
}

}  // namespace evenkeel
