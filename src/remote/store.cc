#include "remote/store.h"

#include <algorithm>
#include <ctime>

#include "base/visible.h"
#include "evenkeel/error.h"
#include "remote/sigv4.h"

namespace evenkeel {
namespace {

constexpr std::int64_t kAskAgainAfter = 15;  // seconds

std::string amz_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &parts);
  return text;
}

// Splits "https://host:9000/prefix" into its three parts. The usual port is left out: clients do
// not send it in the field Host, which is signed.
void split_endpoint(const std::string& endpoint, std::string& scheme, std::string& host,
                    std::string& prefix) {
  const std::size_t begin = endpoint.find("://") + 3;
  const std::size_t slash = std::min(endpoint.find('/', begin), endpoint.size());
  scheme = endpoint.substr(0, begin);
  host = endpoint.substr(begin, slash - begin);
  const std::string_view port = scheme == "https://" ? ":443" : ":80";
  if (host.ends_with(port)) host.resize(host.size() - port.size());
  prefix = endpoint.substr(slash);
}

}  // namespace

Store::Store(const Address& address, RemoteSettings settings)
    : settings_(std::move(settings)),
      scheme_(address.scheme),
      signer_([this] { return make_signer(); }) {}

std::unique_ptr<Store::Signer> Store::make_signer() const {
  auto signer = std::make_unique<Signer>();
  const MutexLock lock(signer->mutex);
  signer->region = settings_.region;
  if (scheme_ == Scheme::kGs) signer->region = "auto";
  if (scheme_ == Scheme::kS3 && signer->region.empty()) signer->region = profile_region();
  if (signer->region.empty()) signer->region = "us-east-1";
  signer->credentials = look_for_credentials(signer->region);
  return signer;
}

Credentials Store::look_for_credentials(const std::string& region, bool renew) const {
  if (settings_.anonymous) return {};
  if (scheme_ == Scheme::kS3) return find_aws_credentials(settings_, region, renew);
  if (scheme_ == Scheme::kGs) return find_google_credentials();
  return {};
}

bool Store::signs() const {
  Signer& signer = signer_.get();
  const MutexLock lock(signer.mutex);
  return !signer.credentials.none();
}

// A server names the region, and the region becomes part of the names of hosts that credentials are
// sent to. Any other character could name a host that is not Amazon's.
bool Store::learn_region(const std::string& region) {
  Signer& signer = signer_.get();
  const MutexLock lock(signer.mutex);
  const bool plain = std::ranges::all_of(
      region, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
  if (scheme_ != Scheme::kS3 || region.empty() || !plain || region == signer.region ||
      region.size() > 64) {
    return false;
  }
  signer.region = region;
  ++signer.generation;
  return true;
}

std::uint64_t Store::generation() const {
  Signer& signer = signer_.get();
  const MutexLock lock(signer.mutex);
  return signer.generation;
}

bool Store::renew_credentials() {
  Signer& signer = signer_.get();
  const MutexLock lock(signer.mutex);
  Credentials fresh = look_for_credentials(signer.region, true);
  if (fresh.none()) return false;  // keep the old ones: errors describe them
  const bool other = fresh.key_id != signer.credentials.key_id ||
                     fresh.token.view() != signer.credentials.token.view();
  signer.credentials = std::move(fresh);
  if (other) ++signer.generation;
  return other;
}

// Renews credentials a few minutes before they expire. If the service does not answer, the next
// requests try again while the old ones are valid.
void Store::renew_if_due(Signer& signer) const {
  const std::int64_t expires = signer.credentials.expires;
  const std::int64_t now = std::time(nullptr);
  if (expires == 0 || now < expires - kRenewBefore || now < signer.next_renewal) return;
  try {
    if (Credentials fresh = look_for_credentials(signer.region); !fresh.none()) {
      signer.credentials = std::move(fresh);
    }
  } catch (const Error&) {
    if (now >= expires) throw;
  }
  signer.next_renewal = std::time(nullptr) + kAskAgainAfter;
}

std::string Store::describe() const {
  Signer& signer = signer_.get();
  const MutexLock lock(signer.mutex);
  if (scheme_ == Scheme::kHttp || scheme_ == Scheme::kHttps) return "not signed";
  std::string text = signer.credentials.none() ? "not signed: no credentials were found"
                                               : "credentials from " + signer.credentials.found_in;
  if (scheme_ == Scheme::kS3) text += ", region " + visible(signer.region);
  return text;
}

std::string Store::base_url(const Address& object, const std::string& region, std::string& host,
                            std::string& path) const {
  std::string scheme = "https://", prefix;
  const std::string key = percent_encode(object.path, true);
  const std::string& endpoint =
      scheme_ == Scheme::kGs ? settings_.gs_endpoint : settings_.s3_endpoint;
  // The server's wildcard certificate does not cover bucket names with dots.
  bool path_style = scheme_ == Scheme::kGs || object.host.find('.') != object.host.npos;
  if (!endpoint.empty()) {
    split_endpoint(endpoint, scheme, host, prefix);
    path_style = settings_.path_style.value_or(true);
  } else if (scheme_ == Scheme::kGs) {
    host = "storage.googleapis.com";
  } else {
    host = "s3." + region + ".amazonaws.com";
    path_style = settings_.path_style.value_or(path_style);
  }
  if (!path_style) host = object.host + "." + host;
  path = prefix + (path_style ? "/" + object.host : "") + "/" + key;
  return scheme + host + path;
}

HttpRequest Store::request(const Address& object, const QueryFields& fields) {
  HttpRequest request;
  request.ca_file = settings_.ca_file;
  if (!object.is_bucket()) {
    request.url = object.text();
    return request;
  }
  Address asked = object;
  if (!fields.empty()) asked.path.clear();
  return signed_request(std::move(request), asked, fields, std::string(kEmptyPayload));
}

HttpRequest Store::upload_request(const std::string& method, const Address& object,
                                  const QueryFields& fields, const std::string& payload_hash) {
  HttpRequest request;
  request.method = method;
  request.ca_file = settings_.ca_file;
  return signed_request(std::move(request), object, fields, payload_hash);
}

HttpRequest Store::signed_request(HttpRequest request, const Address& asked,
                                  const QueryFields& fields, const std::string& payload_hash) {
  Signer& signer = signer_.get();
  const MutexLock lock(signer.mutex);
  renew_if_due(signer);
  if (scheme_ == Scheme::kS3 && !settings_.aws_ca_bundle.empty()) {
    request.ca_file = settings_.aws_ca_bundle;
  }
  request.generation = signer.generation;
  std::string host, path;
  request.url = base_url(asked, signer.region, host, path);
  const std::string query = encode_query(fields);
  if (!query.empty()) request.url += "?" + query;
  sign(request, signer, host, path, query, payload_hash);
  return request;
}

void Store::sign(HttpRequest& request, const Signer& signer, const std::string& host,
                 const std::string& path, const std::string& query,
                 const std::string& payload_hash) const {
  const Credentials& credentials = signer.credentials;
  if (credentials.none()) return;
  if (credentials.bearer) {
    request.headers.push_back("Authorization: Bearer " + std::string(credentials.token.view()));
    return;
  }
  const std::string time = amz_time();
  SignedRequest to_sign{
      .method = request.method,
      .path = path,
      .query = query,
      .headers = {{"host", host}, {"x-amz-content-sha256", payload_hash}, {"x-amz-date", time}},
      .payload_hash = payload_hash};
  if (!credentials.token.empty()) {
    to_sign.headers.emplace_back("x-amz-security-token", credentials.token.view());
  }
  if (settings_.requester_pays) to_sign.headers.emplace_back("x-amz-request-payer", "requester");
  for (const auto& [name, value] : to_sign.headers) {
    if (name == "host") continue;
    std::string& line = request.headers.emplace_back(name);
    line.append(": ").append(value);
  }
  request.headers.push_back(
      "Authorization: " +
      authorization(to_sign, {credentials.key_id, credentials.secret.view(), signer.region, "s3"},
                    time));
}

}  // namespace evenkeel
