// Request signatures of AWS, version 4.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace evenkeel {

struct SignedRequest {
  std::string method = "GET";
  std::string path;   // encoded, as in the URL
  std::string query;  // encoded and sorted (encode_query)
  // Lower-case names and their values, including `host`. All of them are signed.
  std::vector<std::pair<std::string, std::string>> headers;
  std::string payload_hash;  // SHA-256 of the body in hex, or UNSIGNED-PAYLOAD
};

struct SigningKey {
  std::string_view key_id, secret;
  std::string_view region, service;
};

// SHA-256 of an empty body.
inline constexpr std::string_view kEmptyPayload =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

// The value of the Authorization header. `time` is as in x-amz-date, 20130524T000000Z.
std::string authorization(const SignedRequest& request, const SigningKey& key,
                          std::string_view time);

}  // namespace evenkeel
