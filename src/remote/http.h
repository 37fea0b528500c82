// Requests over HTTP, many at a time on connections that are used again: libcurl's multi interface,
// which is loaded when the first URL is opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace evenkeel {

struct ByteRange {
  std::uint64_t first = 0, last = 0;  // inclusive, as in HTTP
};

struct HttpRequest {
  std::string method = "GET";
  std::string url = {};
  std::vector<std::string> headers = {};  // "Name: value"
  std::string body = {};
  // Sent instead of the body, from where it lies until the answer.
  std::span<const std::byte> payload = {};
  // The bytes to ask for, and where they go: room for last - first + 1 of them. Without a range the
  // answer is text, of at most kMostText bytes.
  std::optional<ByteRange> range = {};
  std::byte* into = nullptr;
  // If set, no byte of an answer with another ETag is written: a second request for the same bytes
  // may be under way to the same place.
  std::string etag = {};
  std::string ca_file = {};      // certificates to trust; empty: the system's
  std::uint64_t generation = 0;  // of what it was signed with; the answer has it, too
  bool past_proxies = false;     // for addresses that only this machine can reach
};

// Whether the body of an answer is what was asked for.
enum class Body : std::uint8_t {
  kNone,          // there was none, or none was to be kept
  kText,          // in HttpAnswer::text: an error, or an answer to a request without a range
  kRange,         // the bytes asked for, or the first of them
  kWholeObject,   // the server sent all of an object that is no longer than what was asked for
  kIgnoresRange,  // the server sent all of a longer object
  kOtherBytes,    // Content-Range says other bytes than asked for
};

inline constexpr std::size_t kMostText = 8 << 20;
// Memory of one connection: libcurl's buffers, those of TLS, and what is known of the request.
inline constexpr std::size_t kReceiveBuffer = 64 << 10, kConnectionMemory = 128 << 10;

struct HttpAnswer {
  std::uint64_t id = 0;
  std::uint64_t first = 0;  // of the range that was asked for
  std::uint64_t generation = 0;
  int status = 0;         // 0: the server did not answer
  std::string failure;    // why the transfer broke off; empty if it did not
  bool hopeless = false;  // trying again cannot help: a certificate, a malformed URL
  Body body = Body::kNone;
  std::uint64_t written = 0;  // bytes at `into`
  std::string text;
  // Header fields; empty where there were none.
  std::string etag, last_modified, content_range, location, retry_after, region, date;
  std::optional<std::uint64_t> content_length;
  double first_byte_s = 0, total_s = 0;
};

// One thread at a time. Nothing of it may be used in a child of fork, not even its destructor.
class HttpClient {
 public:
  // Throws Error (kInvalid) where there is no libcurl.
  explicit HttpClient(unsigned connections);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // `request.into` must stay there until the answer, or until it is cancelled. `id` is the
  // caller's.
  void start(std::uint64_t id, const HttpRequest& request);
  // What has come of it; a status only where the body had begun.
  HttpAnswer cancel(std::uint64_t id);
  // Works for up to `milliseconds`, and returns sooner when there are answers, which are appended.
  void work(int milliseconds, std::vector<HttpAnswer>& answers);
  std::size_t in_flight() const;
  // Bytes of the body so far, and of the payload that was sent.
  std::uint64_t written(std::uint64_t id) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "libcurl 7.88.1, OpenSSL 3.0.19"; or why there is none, with `available` false.
std::string describe_http(bool& available);

}  // namespace evenkeel
