#include "remote/settings.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/number.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

Error wrong_variable(const char* name, const std::string& value, const std::string& wanted) {
  return Error(ErrorKind::kInvalid, "open",
               std::string(name) + " is \"" + value + "\"; it must be " + wanted)
      .hint("unset it, or see docs/remote.md");
}

bool flag(const char* name, bool otherwise) {
  const std::string value = environment(name);
  if (value.empty()) return otherwise;
  if (value == "1" || value == "true" || value == "yes") return true;
  if (value == "0" || value == "false" || value == "no") return false;
  throw wrong_variable(name, value, "1 or 0");
}

double number(const char* name, double otherwise, double least, double most) {
  const std::string value = environment(name);
  if (value.empty()) return otherwise;
  char* end = nullptr;
  const double result = std::strtod(value.c_str(), &end);
  if (end != value.c_str() + value.size() || !(result >= least && result <= most)) {
    throw wrong_variable(name, value,
                         "a number from " + number_text(least) + " to " + number_text(most));
  }
  return result;
}

std::string without_slashes(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url;
}

}  // namespace

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

RemoteSettings RemoteSettings::from_environment() {
  RemoteSettings settings;
  settings.s3_endpoint = environment("AWS_ENDPOINT_URL_S3");
  if (settings.s3_endpoint.empty()) settings.s3_endpoint = environment("AWS_ENDPOINT_URL");
  settings.s3_endpoint = without_slashes(settings.s3_endpoint);
  settings.gs_endpoint = without_slashes(environment("STORAGE_EMULATOR_HOST"));
  if (!settings.gs_endpoint.empty() && !settings.gs_endpoint.starts_with("http")) {
    settings.gs_endpoint = "http://" + settings.gs_endpoint;
  }
  for (const std::string* endpoint : {&settings.s3_endpoint, &settings.gs_endpoint}) {
    if (endpoint->find('@') != endpoint->npos) {
      throw Error(ErrorKind::kInvalid, "open",
                  "AWS_ENDPOINT_URL or STORAGE_EMULATOR_HOST contains an @: an endpoint must not "
                  "contain a user name or a password")
          .hint("put keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; see docs/remote.md");
    }
    if (!endpoint->empty() && !endpoint->starts_with("http://") &&
        !endpoint->starts_with("https://")) {
      throw wrong_variable("AWS_ENDPOINT_URL", *endpoint,
                           "a URL that begins with https:// or http://");
    }
  }
  settings.region = environment("AWS_REGION");
  if (settings.region.empty()) settings.region = environment("AWS_DEFAULT_REGION");
  if (!environment("EVENKEEL_S3_PATH_STYLE").empty()) {
    settings.path_style = flag("EVENKEEL_S3_PATH_STYLE", true);
  }
  settings.ca_file = environment("SSL_CERT_FILE");
  settings.aws_ca_bundle = environment("AWS_CA_BUNDLE");
  settings.anonymous = flag("EVENKEEL_ANONYMOUS", false);
  settings.requester_pays = flag("EVENKEEL_REQUESTER_PAYS", false);
  settings.connections = static_cast<unsigned>(number("EVENKEEL_CONNECTIONS", 64, 1, 1024));
  settings.requests_per_second = number("EVENKEEL_REQUESTS_PER_SECOND", 0, 0, 1e6);
  settings.stall_s = number("EVENKEEL_STALL_TIMEOUT", 20, 0.01, 3600);
  settings.deadline_s = number("EVENKEEL_DEADLINE", 300, 0.01, 86400);
  settings.attempts = static_cast<unsigned>(number("EVENKEEL_ATTEMPTS", 10, 1, 1000));
  settings.retry_delay_s = number("EVENKEEL_RETRY_DELAY", 0.1, 0, 60);
  settings.hedge = flag("EVENKEEL_HEDGE", !settings.requester_pays);
  return settings;
}

}  // namespace evenkeel
