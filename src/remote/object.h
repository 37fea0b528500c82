// Objects on servers, and reading ranges of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

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
  unsigned renewals_ = 0;  // of credentials; also counts redirects
};

}  // namespace evenkeel
