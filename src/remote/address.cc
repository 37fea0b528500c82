#include "remote/address.h"

#include <algorithm>
#include <array>

#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::array<std::pair<std::string_view, Scheme>, 4> kSchemes = {{
    {"http://", Scheme::kHttp},
    {"https://", Scheme::kHttps},
    {"s3://", Scheme::kS3},
    {"gs://", Scheme::kGs},
}};

const std::pair<std::string_view, Scheme>* scheme_of(std::string_view url) {
  const auto* found = std::ranges::find_if(
      kSchemes, [&](const auto& scheme) { return url.starts_with(scheme.first); });
  return found == kSchemes.end() ? nullptr : found;
}

bool is_unreserved(unsigned char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool has_scheme(std::string_view reference) {
  const std::size_t colon = reference.find_first_of(":/?#");
  return colon != reference.npos && colon > 0 && reference[colon] == ':';
}

// "/a/b/../c/./d" becomes "/a/c/d".
std::string without_dot_segments(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/', 1), path.size());  // path begins with /
    const std::string_view segment = path.substr(0, end);
    path.remove_prefix(end);
    const bool last = path.empty();
    if (segment == "/." || segment == "/..") {
      if (segment == "/..") out.resize(out.empty() ? 0 : out.rfind('/'));
      if (last) out += '/';
    } else {
      out += segment;
    }
  }
  return out;
}

}  // namespace

bool is_url(std::string_view path) { return scheme_of(path) != nullptr; }

std::string Address::text() const {
  std::string url(
      std::ranges::find(kSchemes, scheme, &decltype(kSchemes)::value_type::second)->first);
  url += host + (is_bucket() ? "/" : "") + path;
  if (!query.empty()) url += "?" + query;
  return url;
}

Address parse_address(const std::string& url) {
  const auto* scheme = scheme_of(url);
  const auto wrong = [&](const std::string& what, const std::string& hint) {
    return Error(ErrorKind::kInvalid, "open", what).in(url).hint(hint);
  };
  if (!scheme) throw wrong("this is not a URL", "write https://, http://, s3:// or gs://");
  Address address{.scheme = scheme->second, .host = {}, .path = {}, .query = {}};
  const std::string_view rest = std::string_view(url).substr(scheme->first.size());
  const std::size_t slash =
      std::min(rest.find_first_of(address.is_bucket() ? "/" : "/?#"), rest.size());
  address.host = rest.substr(0, slash);
  const auto bad = [](unsigned char c) { return c <= ' ' || c == 0x7f; };
  if (address.is_bucket()) {
    if (address.host.empty()) {
      throw wrong("the URL names no bucket", "write s3://bucket/key");
    }
    if (!std::ranges::all_of(address.host, [](unsigned char c) { return is_unreserved(c); })) {
      throw wrong("a bucket name may contain only letters, digits, '-', '.' and '_'",
                  "write s3://bucket/key");
    }
    address.path = slash < rest.size() ? rest.substr(slash + 1) : "";
    if (address.path.find('\0') != address.path.npos) {
      throw wrong("a key cannot contain a zero byte", "check the spelling");
    }
    return address;
  }
  if (address.host.empty()) throw wrong("the URL names no host", "write https://host/path");
  if (address.host.find('@') != address.host.npos) {
    throw Error(ErrorKind::kInvalid, "open",
                "a URL with a user name before the host is not accepted")
        .in(std::string(scheme->first) + "..." + address.host.substr(address.host.rfind('@')))
        .hint("secrets in URLs end up in logs; use a presigned URL, or s3:// with credentials");
  }
  if (std::ranges::any_of(rest, bad)) {
    throw wrong("a URL cannot contain spaces or control characters",
                "write %20 for a space, as browsers do");
  }
  const std::size_t fragment = std::min(rest.find('#'), rest.size());
  const std::size_t query = std::min(rest.find('?'), fragment);
  address.path = slash < query ? rest.substr(slash, query - slash) : "/";
  if (query < fragment) address.query = rest.substr(query + 1, fragment - query - 1);
  return address;
}

std::string resolve_reference(const Address& base, std::string_view reference) {
  if (has_scheme(reference)) return std::string(reference);
  if (reference.starts_with("//")) {
    return (base.scheme == Scheme::kHttps ? "https:" : "http:") + std::string(reference);
  }
  const std::size_t end = std::min(reference.find_first_of("?#"), reference.size());
  std::string path(reference.substr(0, end));
  const std::string_view rest = reference.substr(end);
  Address target{.scheme = base.scheme, .host = base.host, .path = base.path, .query = {}};
  if (!path.empty()) {
    if (path[0] != '/') path = base.path.substr(0, base.path.rfind('/') + 1) + path;
    target.path = without_dot_segments(path);
  } else if (!rest.starts_with("?")) {
    target.query = base.query;
  }
  return target.text() + std::string(rest);
}

std::string object_name(std::string_view url) {
  std::string_view path = url;
  if (url.starts_with("http")) path = path.substr(0, path.find_first_of("?#"));
  const std::size_t slash = path.rfind('/');
  return std::string(slash == path.npos ? path : path.substr(slash + 1));
}

bool path_ends_with(std::string_view url, std::string_view ending) {
  return object_name(url).ends_with(ending);
}

std::string with_ending(const std::string& url, std::string_view old, std::string_view ending) {
  const std::size_t end =
      url.starts_with("http") ? std::min(url.find_first_of("?#"), url.size()) : url.size();
  return url.substr(0, end - old.size()).append(ending) + url.substr(end);
}

std::string percent_encode(std::string_view text, bool keep_slashes) {
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_unreserved(byte) || (c == '/' && keep_slashes)) {
      encoded += c;
    } else {
      encoded += '%';
      encoded += "0123456789ABCDEF"[byte >> 4];
      encoded += "0123456789ABCDEF"[byte & 15];
    }
  }
  return encoded;
}

std::string without_signature(std::string_view query) {
  constexpr std::array<std::string_view, 9> kSigning = {
      "signature",   "sig",    "expires", "awsaccesskeyid", "googleaccessid",
      "key-pair-id", "policy", "token",   "access_token"};
  std::string kept;
  while (!query.empty()) {
    const std::string_view field = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(field.size() + 1, query.size()));
    std::string name(field.substr(0, field.find('=')));
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    if (name.starts_with("x-amz-") || name.starts_with("x-goog-") ||
        std::ranges::find(kSigning, name) != kSigning.end()) {
      continue;
    }
    kept.append(kept.empty() ? "" : "&").append(field);
  }
  return kept;
}

std::string percent_decode(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    if (low >= 0) {
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

std::string encode_query(std::vector<std::pair<std::string, std::string>> fields) {
  for (auto& [name, value] : fields) {
    name = percent_encode(name, false);
    value = percent_encode(value, false);
  }
  std::ranges::sort(fields);
  std::string text;
  for (const auto& [name, value] : fields) {
    if (!text.empty()) text += '&';
    text.append(name).append("=").append(value);
  }
  return text;
}

}  // namespace evenkeel
