#include "remote/sigv4.h"

#include <algorithm>

#include "remote/sha256.h"

namespace evenkeel {
namespace {

// Removes spaces around a value, and replaces each run of spaces within it by one.
std::string trimmed(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c != ' ' || (!text.empty() && text.back() != ' ')) text += c;
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

}  // namespace

std::string authorization(const SignedRequest& request, const SigningKey& key,
                          std::string_view time) {
  auto headers = request.headers;
  std::ranges::sort(headers);
  std::string canonical = request.method + "\n" + request.path + "\n" + request.query + "\n";
  std::string names;
  for (const auto& [name, value] : headers) {
    canonical += name + ":" + trimmed(value) + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  canonical += "\n" + names + "\n" + request.payload_hash;

  const std::string day(time.substr(0, 8));
  const std::string scope =
      day + "/" + std::string(key.region) + "/" + std::string(key.service) + "/aws4_request";
  const std::string to_sign =
      "AWS4-HMAC-SHA256\n" + std::string(time) + "\n" + scope + "\n" + hex_of(sha256(canonical));
  Digest derived = hmac_sha256("AWS4" + std::string(key.secret), day);
  for (const std::string_view part : {key.region, key.service, std::string_view("aws4_request")}) {
    derived = hmac_sha256(bytes_of(derived), part);
  }
  return "AWS4-HMAC-SHA256 Credential=" + std::string(key.key_id) + "/" + scope +
         ",SignedHeaders=" + names +
         ",Signature=" + hex_of(hmac_sha256(bytes_of(derived), to_sign));
}

}  // namespace evenkeel
