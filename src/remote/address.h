// Addresses of objects: http://, https://, s3://bucket/key and gs://bucket/key.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace evenkeel {

enum class Scheme : std::uint8_t { kHttp, kHttps, kS3, kGs };

// A URL as users write it, split into its parts.
struct Address {
  Scheme scheme = Scheme::kHttps;
  std::string host;   // with the port, if there is one; for s3 and gs: the bucket
  std::string path;   // http: as written, with the first /; s3 and gs: the key, not encoded
  std::string query;  // http: what follows the ?, as written

  bool is_bucket() const { return scheme == Scheme::kS3 || scheme == Scheme::kGs; }
  std::string text() const;  // the URL again
};

// Whether a path names an object rather than a file: it begins with one of the four schemes.
bool is_url(std::string_view path);
// Throws Error (kInvalid) if there is no host or bucket, if there is a user name before the host,
// or for a character that no URL can contain.
Address parse_address(const std::string& url);

// Where a reference leads that a page at `base` (http) contains: RFC 3986, section 5.2. A reference
// that is a URL itself, of any scheme, is returned as it is.
std::string resolve_reference(const Address& base, std::string_view reference);

// The last part of the path: "x.bin" for "s3://b/a/x.bin". For fingerprints and file extensions.
std::string object_name(std::string_view url);
// The URL with another ending. In http addresses, the ending of the path before the query.
std::string with_ending(const std::string& url, std::string_view old, std::string_view ending);
bool path_ends_with(std::string_view url, std::string_view ending);

// RFC 3986, as AWS requires it in signatures: everything but letters, digits and -._~ becomes %XX.
// With `keep_slashes`, / stays.
std::string percent_encode(std::string_view text, bool keep_slashes);
// The query without the fields of its signature: they change, but do not identify the object.
std::string without_signature(std::string_view query);
std::string percent_decode(std::string_view text);
// name=value&name=value, encoded and sorted as in signatures.
std::string encode_query(std::vector<std::pair<std::string, std::string>> fields);

}  // namespace evenkeel
