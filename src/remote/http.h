// HTTP requests, many at a time on connections that are reused. Uses libcurl's multi interface;
// libcurl is loaded when the first URL is opened.
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
  // Sent instead of the body, without a copy. It must stay valid until the answer.
  std::span<const std::byte> payload = {};
  // The bytes to request, and where they go: room for last - first + 1 bytes. Without a range the
  // answer is text of at most kMostText bytes.
  std::optional<ByteRange> range = {};
  std::byte* into = nullptr;
  // If set, no byte of an answer with another ETag is written, because a second request for the
  // same bytes may be writing to the same memory.
  std::string etag = {};
  // The URL again if it is the target of a redirect; copied to the answer.
  std::string redirected_to = {};
  std::string ca_file = {};      // certificates to trust; empty: the system's
  std::uint64_t generation = 0;  // of the keys it was signed with (Store); copied to the answer
  bool past_proxies = false;     // for addresses that only this machine can reach
};

// How the body of an answer relates to the request.
enum class Body : std::uint8_t {
  kNone,          // there was none, or it was discarded
  kText,          // in HttpAnswer::text: an error, or an answer to a request without a range
  kRange,         // the requested bytes, or the first of them
  kWholeObject,   // the server sent a whole object that is no longer than the requested range
  kIgnoresRange,  // the server sent a whole object that is longer
  kOtherBytes,    // Content-Range names other bytes than requested
  kCompressed,    // Content-Encoding: the bytes are not those of the object
};

inline constexpr std::size_t kMostText = 8 << 20;
// Memory of one connection: buffers of libcurl and TLS, and the state of the request.
inline constexpr std::size_t kReceiveBuffer = 64 << 10, kConnectionMemory = 128 << 10;

struct HttpAnswer {
  std::uint64_t id = 0;
  std::uint64_t first = 0;  // of the requested range
  std::uint64_t generation = 0;
  std::string redirected_to;
  int status = 0;          // 0: the server did not answer
  std::string failure;     // why the transfer failed; empty if it did not
  bool hopeless = false;   // a retry cannot help: a certificate not trusted, a malformed URL
  bool untrusted = false;  // the reason is the server's certificate
  Body body = Body::kNone;
  std::uint64_t written = 0;  // bytes at `into`
  std::string text;
  // Header fields; empty if the server did not send them.
  std::string etag, last_modified, content_range, content_encoding, location, retry_after, region;
  std::optional<std::uint64_t> content_length;
  double first_byte_s = 0, total_s = 0;
};

// Not thread-safe. Must not be used in a child of fork; not even its destructor may run there.
class HttpClient {
 public:
  // Throws Error (kInvalid) if there is no libcurl.
  explicit HttpClient(unsigned connections);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // `request.into` must stay valid until the answer or until the request is cancelled. The caller
  // chooses `id`.
  void start(std::uint64_t id, const HttpRequest& request);
  // Returns what arrived so far. Its status is 0 unless the body had begun.
  HttpAnswer cancel(std::uint64_t id);
  // Works for up to `milliseconds`. Returns sooner if answers arrive, and appends them.
  void work(int milliseconds, std::vector<HttpAnswer>& answers);
  std::size_t in_flight() const;
  // Bytes of the body received so far, plus bytes of the payload sent.
  std::uint64_t written(std::uint64_t id) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "libcurl 7.88.1, OpenSSL 3.0.19". If libcurl is missing: why, and `available` is false.
std::string describe_http(bool& available);

}  // namespace evenkeel
