#include "remote/credential_services.h"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <vector>

#include "base/json.h"
#include "base/mutex.h"
#include "base/per_process.h"
#include "base/sys.h"
#include "base/text_file.h"
#include "base/visible.h"
#include "evenkeel/error.h"
#include "remote/address.h"
#include "remote/http.h"
#include "remote/response.h"
#include "remote/sigv4.h"
#include "remote/xml.h"

namespace evenkeel {
namespace {

constexpr int kAnswerMs = 10'000;
// Short, because outside a cloud nothing answers at this address.
constexpr int kMachineMs = 1'000;
constexpr unsigned kTries = 3;
constexpr std::int64_t kNoneFor = 60;  // seconds until a service without keys is asked again

// Makes one request. The status of the answer is 0 if none arrived in time.
HttpAnswer ask_once(const HttpRequest& request, int milliseconds) {
  HttpClient client(1);
  client.start(1, request);
  const std::int64_t end = sys::monotonic_ns() + std::int64_t{milliseconds} * 1'000'000;
  std::vector<HttpAnswer> answers;
  while (answers.empty()) {
    const std::int64_t left = (end - sys::monotonic_ns()) / 1'000'000;
    if (left <= 0) {
      HttpAnswer none;
      none.failure = "no answer within " + std::to_string(milliseconds / 1000) + " s";
      return none;
    }
    client.work(static_cast<int>(std::min<std::int64_t>(left, 100)), answers);
  }
  return std::move(answers.front());
}

HttpAnswer ask(const HttpRequest& request, int milliseconds) {
  HttpAnswer answer;
  for (unsigned i = 0; i < kTries; ++i) {
    answer = ask_once(request, milliseconds);
    const bool passing = answer.status == 0 || answer.status == 429 || answer.status >= 500;
    if (!passing || answer.hopeless) break;
  }
  return answer;
}

std::string text_of(const std::string& path) {
  std::string text = read_text_file(path).value_or("");
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
    text.pop_back();
  }
  return text;
}

// The body of the answer is never part of an error, because it may contain keys.
Error refused(const std::string& service, const HttpAnswer& answer) {
  std::string what = service;
  if (answer.status == 0) {
    what += " did not answer: " + visible(answer.failure);
  } else {
    what += " " + describe_refusal(answer);
  }
  return {ErrorKind::kInvalid, "open", what};
}

Credentials checked(Credentials found, const std::string& expiration, const std::string& service) {
  if (found.key_id.empty() || found.secret.empty()) {
    throw Error(ErrorKind::kFormat, "open", service + " answered without keys");
  }
  if (!expiration.empty()) {
    const auto expires = parse_expiration(expiration);
    if (!expires) {
      throw Error(ErrorKind::kFormat, "open",
                  service + " returned keys that expire at \"" + visible(expiration) +
                      "\", which is not a time");
    }
    found.expires = *expires;
  }
  return found;
}

// Whether a token may be sent to this URL. Without TLS, it may only go to this machine and to
// addresses that clouds reserve for it.
bool may_hear_token(const std::string& url) {
  if (url.starts_with("https://")) return true;
  if (!url.starts_with("http://")) return false;
  std::string host = url.substr(7, url.find_first_of("/?#", 7) - 7);
  if (host.find('@') != host.npos) return false;
  const std::size_t end = host.starts_with('[') ? host.find(']') + 1 : host.find(':');
  host = host.substr(0, end);
  return host == "169.254.170.2" || host == "169.254.170.23" || host == "[fd00:ec2::23]" ||
         host == "[::1]" || host == "localhost" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos);
}

}  // namespace

Credentials kept_credentials(const std::string& key, bool renew,
                             const std::function<Credentials()>& ask) {
  struct Found {
    Credentials credentials;
    std::int64_t good_until = 0;  // seconds since 1970
  };
  struct Kept {
    Mutex mutex;
    std::map<std::string, Found> by_key GUARDED_BY(mutex);
  };
  // Never destroyed, because arrays may be opened while the program exits.
  static auto& kept = *new PerProcess<Kept>([] { return std::make_unique<Kept>(); });
  Kept& mine = kept.get();
  const MutexLock lock(mine.mutex);  // threads that open at the same time make one request
  const auto found = mine.by_key.find(key);
  if (!renew && found != mine.by_key.end() && std::time(nullptr) < found->second.good_until) {
    return found->second.credentials;
  }
  Found fresh{ask(), INT64_MAX};
  if (fresh.credentials.none()) {
    fresh.good_until = std::time(nullptr) + kNoneFor;
  } else if (fresh.credentials.expires != 0) {
    fresh.good_until = fresh.credentials.expires - kRenewBefore;
  }
  return mine.by_key.insert_or_assign(key, std::move(fresh)).first->second.credentials;
}

std::optional<std::int64_t> parse_expiration(std::string_view text) {
  const std::string copy(text);
  std::tm parts{};
  const char* end = ::strptime(copy.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (!end) return std::nullopt;
  if (*end == '.') {
    ++end;
    while (*end >= '0' && *end <= '9') ++end;
  }
  const std::string_view zone = end;
  if (zone != "Z" && zone != "+00:00") return std::nullopt;
  return ::timegm(&parts);
}

Credentials parse_credentials_json(std::string_view json, const std::string& service) {
  const auto value = parse_json(json);
  if (!value || value->kind != JsonValue::Kind::kObject) {
    throw Error(ErrorKind::kFormat, "open", service + " did not answer with a JSON object");
  }
  const auto field = [&](const char* name) { return std::string(value->text_of(name)); };
  Credentials found{.key_id = field("AccessKeyId"),
                    .secret = Secret(field("SecretAccessKey")),
                    .token = Secret(field("Token")),
                    .found_in = service};
  return checked(std::move(found), field("Expiration"), service);
}

Credentials parse_credentials_xml(std::string_view xml, const std::string& service) {
  Credentials found{.found_in = service};
  std::string expiration;
  try {
    XmlReader reader(xml);
    while (reader.next()) {
      const std::string& path = reader.path();
      if (path.ends_with("/Credentials/AccessKeyId")) found.key_id = reader.text();
      if (path.ends_with("/Credentials/SecretAccessKey")) found.secret = Secret(reader.text());
      if (path.ends_with("/Credentials/SessionToken")) found.token = Secret(reader.text());
      if (path.ends_with("/Credentials/Expiration")) expiration = reader.text();
    }
  } catch (const XmlError& error) {
    throw Error(ErrorKind::kFormat, "open",
                service + " returned XML that is not well formed: " + error.what());
  }
  return checked(std::move(found), expiration, service);
}

Credentials web_identity_credentials(const WebIdentity& identity, const RemoteSettings& settings,
                                     const std::string& region) {
  const std::string token = text_of(identity.token_file);
  if (token.empty()) {
    throw Error(ErrorKind::kInvalid, "open",
                "there is no token in the file of AWS_WEB_IDENTITY_TOKEN_FILE")
        .in(identity.token_file)
        .hint("the pod's service account writes the token; check its volume");
  }
  std::string endpoint = environment("AWS_ENDPOINT_URL_STS");
  if (endpoint.empty()) endpoint = environment("AWS_ENDPOINT_URL");
  if (endpoint.empty()) endpoint = "https://sts." + region + ".amazonaws.com";
  if (!may_hear_token(endpoint)) {
    throw Error(ErrorKind::kInvalid, "open",
                "AWS_ENDPOINT_URL_STS, or AWS_ENDPOINT_URL, must begin with https://, because a "
                "token is sent there");
  }
  while (endpoint.ends_with('/')) endpoint.pop_back();
  HttpRequest request{.method = "POST", .url = endpoint + "/"};
  request.headers = {"Content-Type: application/x-www-form-urlencoded"};
  request.body = encode_query({{"Action", "AssumeRoleWithWebIdentity"},
                               {"RoleArn", identity.role},
                               {"RoleSessionName", identity.session},
                               {"Version", "2011-06-15"},
                               {"WebIdentityToken", token}});
  request.ca_file = settings.aws_ca_bundle.empty() ? settings.ca_file : settings.aws_ca_bundle;
  const HttpAnswer answer = ask(request, kAnswerMs);
  if (answer.status != 200) {
    throw refused("the security token service (AssumeRoleWithWebIdentity)", answer)
        .hint("the request used role " + visible(identity.role) + " and the token in " +
              visible(identity.token_file));
  }
  return parse_credentials_xml(answer.text, "web identity, role " + visible(identity.role));
}

Credentials container_credentials(const RemoteSettings& settings) {
  std::string url = environment("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (const std::string path = environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
      !path.empty()) {
    url = "http://169.254.170.2" + path;
  }
  if (url.empty()) return {};
  if (!may_hear_token(url)) {
    throw Error(ErrorKind::kInvalid, "open",
                "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https:// nor an address of this "
                "machine or of a container service");
  }
  HttpRequest request{.url = url};
  request.ca_file = settings.aws_ca_bundle.empty() ? settings.ca_file : settings.aws_ca_bundle;
  request.past_proxies = !url.starts_with("https://");
  std::string token = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  if (const std::string file = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
      !file.empty()) {
    token = text_of(file);
  }
  if (token.find_first_of("\r\n") != token.npos) {
    throw Error(ErrorKind::kInvalid, "open",
                "the container's authorization token contains line breaks");
  }
  if (!token.empty()) request.headers.push_back("Authorization: " + token);
  const HttpAnswer answer = ask(request, kAnswerMs);
  if (answer.status != 200) throw refused("the container's credentials service", answer);
  return parse_credentials_json(answer.text, "the container's credentials service");
}

Credentials machine_credentials(const RemoteSettings& settings) {
  if (environment("AWS_EC2_METADATA_DISABLED") == "true") return {};
  std::string endpoint = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  // A configured endpoint is expected to exist, so it has more time to answer.
  const bool named = !endpoint.empty();
  if (!named) endpoint = "http://169.254.169.254";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const auto request_for = [&](const char* method, const std::string& path,
                               const std::string& header) {
    HttpRequest request{.method = method, .url = endpoint + path};
    request.headers = {header};
    request.ca_file = settings.ca_file;
    request.past_proxies = true;
    return request;
  };
  const HttpRequest first =
      request_for("PUT", "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: 21600");
  const HttpAnswer token = named ? ask(first, kAnswerMs) : ask_once(first, kMachineMs);
  if (token.status != 200 || token.text.empty() ||
      token.text.find_first_of("\r\n") != token.text.npos) {
    return {};
  }
  const std::string header = "X-aws-ec2-metadata-token: " + token.text;
  const std::string roles = "/latest/meta-data/iam/security-credentials/";
  HttpAnswer role = ask(request_for("GET", roles, header), kAnswerMs);
  if (role.status != 200) return {};  // the machine has no role
  role.text = role.text.substr(0, role.text.find('\n'));
  if (role.text.empty()) return {};
  const std::string service = "the role of this machine, " + visible(role.text);
  const HttpAnswer keys =
      ask(request_for("GET", roles + percent_encode(role.text, false), header), kAnswerMs);
  if (keys.status != 200) throw refused(service, keys);
  return parse_credentials_json(keys.text, service);
}

}  // namespace evenkeel
