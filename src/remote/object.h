// Objects on servers: opening them, and reading ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/per_process.h"
#include "remote/store.h"
#include "remote/transfers.h"

namespace evenkeel {

// An object as it was at open. Every later answer must have the same size and ETag; otherwise the
// object has changed, which is an error. Thread-safe; can be used after fork.
class RemoteObject {
 public:
  std::string url;  // as the user wrote it
  Address address;
  std::shared_ptr<Store> store;
  std::uint64_t size = 0;
  std::string etag, last_modified;  // empty if the server did not send them
  std::string head;                 // its first bytes

  // A request for a range of it. It fails if the object has changed since open.
  HttpRequest request(std::uint64_t first, std::uint64_t last, std::byte* into) const;
  // Makes later requests follow this redirect. Throws Error if that would be unsafe.
  void redirect(const HttpAnswer& answer) const;
  // Makes later requests go to the URL again, because the target of the redirect refused one.
  void forget_redirect(const HttpAnswer& refused) const;
  // What identifies its bytes: the ETag, or else its date and size.
  std::string version() const;
  // Identifies the object and its version, for a cache that outlives this process. Empty if the
  // server sends neither a strong ETag nor a date.
  std::string cache_identity() const;
  // Reads bytes offset .. offset+length-1 over the connections of the current RemoteOpening, or
  // over its own. Throws Error.
  std::string read(std::uint64_t offset, std::size_t length) const;

 private:
  struct Redirect {
    Mutex mutex;
    std::string url GUARDED_BY(mutex);  // empty: there was none
  };
  // A child of fork begins without a redirect.
  mutable PerProcess<Redirect> redirect_{[] { return std::make_unique<Redirect>(); }};
};

// Reads a range of an object into memory.
class RangeTransfer final : public Transfer {
 public:
  // `object` must outlive the transfer; `into` must have room for `length` bytes.
  RangeTransfer(const RemoteObject& object, std::uint64_t offset, std::uint64_t length,
                std::byte* into)
      : object_(object), offset_(offset), length_(length), into_(into) {}

  HttpRequest request() override;
  Outcome judge(HttpAnswer& answer, std::string& reason) override;
  std::string path() const override { return object_.url; }
  std::optional<std::uint64_t> offset() const override { return offset_ + done_; }
  // Only a strong ETag guarantees that two requests return the same bytes.
  bool may_hedge() const override {
    return !object_.etag.empty() && !object_.etag.starts_with("W/");
  }

 private:
  void require_same(const HttpAnswer& answer) const;

  const RemoteObject& object_;
  const std::uint64_t offset_, length_;
  std::byte* const into_;
  std::uint64_t done_ = 0;
  unsigned renewals_ = 0;
};

// A request whose answer is text: a listing, a token.
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

// Whether a failure may be temporary: the server did not answer, its answer broke off before the
// body, or it says that it is busy. Sets `reason`. Throws Error for failures that a retry cannot
// fix.
bool may_pass(const HttpAnswer& answer, const std::string& url, std::string& reason);
// Throws the error for an answer that is neither data nor a temporary failure.
[[noreturn]] void throw_refused(const HttpAnswer& answer, const std::string& url,
                                const Store& store, const char* operation);

// What one call of `open` has found out about URLs. While it lives, each URL that its thread opens
// is requested once, and URLs that are known beforehand are requested together. Openings may be
// nested: all then use the outermost one.
class RemoteOpening {
 public:
  RemoteOpening();
  // Looks these up. Paths that are not URLs are ignored.
  explicit RemoteOpening(const std::vector<std::string>& urls);
  ~RemoteOpening();
  RemoteOpening(const RemoteOpening&) = delete;
  RemoteOpening& operator=(const RemoteOpening&) = delete;

  void look_up(const std::vector<std::string>& urls);
  // The object; empty if there is none that may be read. Throws Error.
  std::shared_ptr<const RemoteObject> find(const std::string& url);
  // The same, but throws Error (kSystem: ENOENT, EACCES) if there is none.
  std::shared_ptr<const RemoteObject> get(const std::string& url);
  std::shared_ptr<Store> store_of(const Address& address);
  Transfers& transfers();
  static RemoteOpening* current();

 private:
  struct Found {
    std::shared_ptr<const RemoteObject> object;  // if empty, `missing` says why
    HttpAnswer missing;
  };
  const Found& look(const std::string& url);

  RemoteOpening* const outer_;
  std::map<std::string, Found> found_;
  std::map<std::string, std::shared_ptr<Store>> stores_;
  TransferTotals totals_;
  std::unique_ptr<Transfers> transfers_;
};

// Opens one object, in the current RemoteOpening or in a new one.
std::shared_ptr<const RemoteObject> open_object(const std::string& url);
// Whether the object exists and may be read.
bool object_exists(const std::string& url);

}  // namespace evenkeel
