#include "remote/store.h"

#include <ctime>

#include "base/visible.h"
#include "evenkeel/error.h"
#include "remote/sigv4.h"

namespace evenkeel {
namespace {

std::string amz_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &parts);
  return text;
}

// "https://host:9000/prefix" into the three parts of it.
void split_endpoint(const std::string& endpoint, std::string& scheme, std::string& host,
                    std::string& prefix) {
  const std::size_t begin = endpoint.find("://") + 3;
  const std::size_t slash = std::min(endpoint.find('/', begin), endpoint.size());
  scheme = endpoint.substr(0, begin);
  host = endpoint.substr(begin, slash - begin);
  prefix = endpoint.substr(slash);
}

}  // namespace

Store::Store(const Address& address, RemoteSettings settings)
    : settings_(std::move(settings)), scheme_(address.scheme) {
  const MutexLock lock(mutex_);
  credentials_ = look_for_credentials();
  region_ = settings_.region;
  if (scheme_ == Scheme::kGs) region_ = "auto";
  if (scheme_ == Scheme::kS3 && region_.empty()) region_ = profile_region();
  if (region_.empty()) region_ = "us-east-1";
}

Credentials Store::look_for_credentials() const {
  if (settings_.anonymous) return {};
  if (scheme_ == Scheme::kS3) return find_aws_credentials(settings_);
  if (scheme_ == Scheme::kGs) return find_google_credentials();
  return {};
}

bool Store::signs() const {
  const MutexLock lock(mutex_);
  return !credentials_.none();
}

bool Store::learn_region(const std::string& region) {
  const MutexLock lock(mutex_);
  if (scheme_ != Scheme::kS3 || region.empty() || region == region_ || region.size() > 64)
    return false;
  region_ = region;
  ++generation_;
  return true;
}

std::uint64_t Store::generation() const {
  const MutexLock lock(mutex_);
  return generation_;
}

bool Store::renew_credentials() {
  Credentials fresh = look_for_credentials();
  const MutexLock lock(mutex_);
  const bool other =
      fresh.key_id != credentials_.key_id || fresh.token.view() != credentials_.token.view();
  credentials_ = std::move(fresh);
  if (other) ++generation_;
  return other;
}

std::string Store::describe() const {
  const MutexLock lock(mutex_);
  if (scheme_ == Scheme::kHttp || scheme_ == Scheme::kHttps) return "not signed";
  std::string text = credentials_.none() ? "not signed: no credentials were found"
                                         : "credentials from " + credentials_.found_in;
  if (scheme_ == Scheme::kS3) text += ", region " + visible(region_);
  return text;
}

std::string Store::base_url(const Address& object, std::string& host, std::string& path) const {
  std::string scheme = "https://", prefix;
  const std::string key = percent_encode(object.path, true);
  const std::string& endpoint =
      scheme_ == Scheme::kGs ? settings_.gs_endpoint : settings_.s3_endpoint;
  // The names of certificates do not cover buckets with dots.
  bool path_style = scheme_ == Scheme::kGs || object.host.find('.') != object.host.npos;
  if (!endpoint.empty()) {
    split_endpoint(endpoint, scheme, host, prefix);
    path_style = settings_.path_style.value_or(true);
  } else if (scheme_ == Scheme::kGs) {
    host = "storage.googleapis.com";
  } else {
    host = "s3." + region_ + ".amazonaws.com";
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
  {
    const MutexLock lock(mutex_);
    if (credentials_.expires == 0 || std::time(nullptr) < credentials_.expires - 120) {
      // still good
    } else {
      credentials_ = look_for_credentials();
    }
    if (scheme_ == Scheme::kS3 && !settings_.aws_ca_bundle.empty()) {
      request.ca_file = settings_.aws_ca_bundle;
    }
    request.generation = generation_;
    Address asked = object;
    if (!fields.empty()) asked.path.clear();
    std::string host, path;
    request.url = base_url(asked, host, path);
    const std::string query = encode_query(fields);
    if (!query.empty()) request.url += "?" + query;
    sign(request, host, path, query);
  }
  return request;
}

void Store::sign(HttpRequest& request, const std::string& host, const std::string& path,
                 const std::string& query) {
  if (credentials_.none()) return;
  if (credentials_.bearer) {
    request.headers.push_back("Authorization: Bearer " + std::string(credentials_.token.view()));
    return;
  }
  const std::string time = amz_time();
  SignedRequest to_sign{.method = "GET",
                        .path = path,
                        .query = query,
                        .headers = {{"host", host},
                                    {"x-amz-content-sha256", std::string(kEmptyPayload)},
                                    {"x-amz-date", time}},
                        .payload_hash = std::string(kEmptyPayload)};
  if (!credentials_.token.empty()) {
    to_sign.headers.emplace_back("x-amz-security-token", credentials_.token.view());
  }
  if (settings_.requester_pays) to_sign.headers.emplace_back("x-amz-request-payer", "requester");
  for (const auto& [name, value] : to_sign.headers) {
    if (name == "host") continue;
    std::string& line = request.headers.emplace_back(name);
    line.append(": ").append(value);
  }
  request.headers.push_back(
      "Authorization: " +
      authorization(to_sign, {credentials_.key_id, credentials_.secret.view(), region_, "s3"},
                    time));
}

}  // namespace evenkeel
