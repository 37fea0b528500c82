#include "remote/answers.h"

#include <cerrno>

#include "base/visible.h"
#include "remote/response.h"

namespace evenkeel {

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

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
    reason = "the server " + describe_refusal(answer);
    return true;
  }
  return false;
}

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
  throw Error::system(operation, code, "the server " + describe_refusal(answer)).in(url).hint(hint);
}

Error compressed_object(const char* operation, const std::string& url, const HttpAnswer& answer) {
  return Error(ErrorKind::kFormat, operation,
               "the server sends the object compressed (Content-Encoding: " +
                   visible(answer.content_encoding) + ")")
      .in(url)
      .hint("turn this compression off at the server or the proxy, or store the object without it");
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
  if (learnt_something(answer, *store_, renewals_)) return Outcome::kAgain;
  throw_refused(answer, url_, *store_, operation_);
}

}  // namespace evenkeel
