// What an answer means that does not hold the bytes of an object: whether to send the request
// again, or which error to report. And requests whose answer is text.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "evenkeel/error.h"
#include "remote/store.h"
#include "remote/transfers.h"

namespace evenkeel {

inline constexpr unsigned kMostRenewals = 2;   // of credentials, and of expired redirects
inline constexpr unsigned kMostRedirects = 5;  // of one request

bool is_redirect(int status);
// Whether a failure may be temporary: the server did not answer, its answer broke off before the
// body, or it says that it is busy. Sets `reason`. Throws Error for failures that a retry cannot
// fix.
bool may_pass(const HttpAnswer& answer, const std::string& url, std::string& reason);
// Whether a refused request may succeed if it is repeated at once: the server named the bucket's
// region, or the credentials had expired and there are new ones. Counts renewals.
bool learnt_something(const HttpAnswer& answer, Store& store, unsigned& renewals);
// Throws the error for an answer that is neither data nor a temporary failure.
[[noreturn]] void throw_refused(const HttpAnswer& answer, const std::string& url,
                                const Store& store, const char* operation);
// The error for Body::kCompressed.
Error compressed_object(const char* operation, const std::string& url, const HttpAnswer& answer);

// A request whose answer is text: a listing, an answer to an upload.
class TextTransfer : public Transfer {
 public:
  // `operation` is for errors.
  TextTransfer(std::string url, std::shared_ptr<Store> store, const char* operation = "open")
      : url_(std::move(url)), store_(std::move(store)), operation_(operation) {}
  Outcome judge(HttpAnswer& answer, std::string& reason) override;
  std::string path() const override { return url_; }
  const std::string& text() const { return text_; }

 protected:
  const std::string url_;
  const std::shared_ptr<Store> store_;

 private:
  const char* const operation_;
  std::string text_;
  unsigned renewals_ = 0;
};

}  // namespace evenkeel
