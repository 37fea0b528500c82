// Objects on servers: what is known of one when it is opened, and reading a range of it.
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

// An object as it was at open. Every later answer must have its size and its ETag, or else the
// object has changed, which is an error. Thread-safe, and fine across fork.
class RemoteObject {
 public:
  std::string url;  // as the user wrote it
  Address address;
  std::shared_ptr<Store> store;
  std::uint64_t size = 0;
  std::string etag, last_modified;  // empty where the server does not say
  std::string head;                 // its first bytes

  // The request for a part of it, pinned to what it was at open.
  HttpRequest request(std::uint64_t first, std::uint64_t last, std::byte* into) const;
  // Follows a redirect from now on. Throws Error where that would be unsafe.
  void redirect(const HttpAnswer& answer) const;
  // Whether there was a redirect to forget.
  bool forget_redirect() const;
  // What identifies its bytes: the ETag, or what comes closest.
  std::string version() const;
  // The same for a cache that outlives this process: which object it is, and which version. Empty
  // where the server says too little to tell versions apart.
  std::string cache_identity() const;
  // Bytes offset .. offset+length-1, read now, on connections of its own. Throws Error.
  std::string read(std::uint64_t offset, std::size_t length) const;

 private:
  struct Redirect {
    Mutex mutex;
    std::string url GUARDED_BY(mutex);  // empty: there was none
  };
  // A child of fork begins without one.
  mutable PerProcess<Redirect> redirect_{[] { return std::make_unique<Redirect>(); }};
};

// Part of an object on its way to memory.
class RangeTransfer final : public Transfer {
 public:
  // `object` must outlive it; `into` must hold `length` bytes.
  RangeTransfer(const RemoteObject& object, std::uint64_t offset, std::uint64_t length,
                std::byte* into)
      : object_(object), offset_(offset), length_(length), into_(into) {}

  HttpRequest request() override;
  Outcome judge(HttpAnswer& answer, std::string& reason) override;
  std::string path() const override { return object_.url; }
  std::optional<std::uint64_t> offset() const override { return offset_ + done_; }
  // Two requests for the same bytes are only sure to bring the same bytes where the ETag says so.
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

// A question whose answer is text: a listing, a token.
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

// Whether a failure may pass: the server did not answer, or says that it is busy. Sets `reason`.
// Throws Error for failures that another try cannot mend.
bool may_pass(const HttpAnswer& answer, const std::string& url, std::string& reason);
// The error for an answer that is neither data nor passing.
[[noreturn]] void throw_refused(const HttpAnswer& answer, const std::string& url,
                                const Store& store, const char* operation);

// What one call of `open` finds out about URLs. Within its life, on its thread, each is asked for
// once, and what it was told to look up beforehand is asked for all at once. They may be nested:
// the outermost counts.
class RemoteOpening {
 public:
  RemoteOpening();
  // Looks these up; those that are no URLs are ignored.
  explicit RemoteOpening(const std::vector<std::string>& urls);
  ~RemoteOpening();
  RemoteOpening(const RemoteOpening&) = delete;
  RemoteOpening& operator=(const RemoteOpening&) = delete;

  void look_up(const std::vector<std::string>& urls);
  // The object, or empty: there is none, or none that may be read. Throws Error.
  std::shared_ptr<const RemoteObject> find(const std::string& url);
  // The same, but throws Error (kSystem: ENOENT, EACCES) where there is none.
  std::shared_ptr<const RemoteObject> get(const std::string& url);
  std::shared_ptr<Store> store_of(const Address& address);
  Transfers& transfers();
  static RemoteOpening* current();

 private:
  struct Found {
    std::shared_ptr<const RemoteObject> object;  // empty: `missing` says why
    HttpAnswer missing;
  };
  const Found& look(const std::string& url);

  RemoteOpening* const outer_;
  std::map<std::string, Found> found_;
  std::map<std::string, std::shared_ptr<Store>> stores_;
  TransferTotals totals_;
  std::unique_ptr<Transfers> transfers_;
};

// Opens one object, in the opening that is under way or in one of its own.
std::shared_ptr<const RemoteObject> open_object(const std::string& url);
// Whether there is such an object that may be read.
bool object_exists(const std::string& url);

}  // namespace evenkeel
