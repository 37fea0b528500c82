#include "remote/credentials.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/checked.h"
#include "base/sys.h"
#include "base/text_file.h"
#include "base/visible.h"
#include "evenkeel/error.h"
#include "remote/credential_services.h"

namespace evenkeel {
namespace {

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

// The content of a file; empty if there is none.
std::string whole_file(const std::string& path) { return read_text_file(path).value_or(""); }

std::string aws_file(const char* variable, const char* name) {
  std::string path = environment(variable);
  if (path.empty()) path = environment("HOME") + "/.aws/" + name;
  return whole_file(path);
}

std::string profile_name() {
  const std::string name = environment("AWS_PROFILE");
  return name.empty() ? "default" : name;
}

// Looks for the setting in both files. In the config file, sections are called "profile NAME".
std::string from_profile(const std::string& profile, std::string_view setting) {
  std::string value =
      profile_setting(aws_file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), profile, setting);
  if (!value.empty()) return value;
  return profile_setting(aws_file("AWS_CONFIG_FILE", "config"),
                         profile == "default" ? profile : "profile " + profile, setting);
}

Credentials from_environment_keys() {
  const std::string id = environment("AWS_ACCESS_KEY_ID");
  const std::string secret = environment("AWS_SECRET_ACCESS_KEY");
  if (id.empty() != secret.empty()) {
    throw Error(ErrorKind::kInvalid, "open",
                std::string(id.empty() ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID") +
                    " is set, but not " +
                    (id.empty() ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY"))
        .hint("set both, or neither");
  }
  return {.key_id = id,
          .secret = Secret(secret),
          .token = Secret(environment("AWS_SESSION_TOKEN")),
          .found_in = "the environment (AWS_ACCESS_KEY_ID)"};
}

Credentials from_profile_keys() {
  const std::string profile = profile_name();
  Credentials found{.key_id = from_profile(profile, "aws_access_key_id"),
                    .secret = Secret(from_profile(profile, "aws_secret_access_key")),
                    .token = Secret(from_profile(profile, "aws_session_token")),
                    .found_in = "profile \"" + visible(profile) + "\" of ~/.aws"};
  if (!found.key_id.empty() && found.secret.empty()) {
    throw Error(
        ErrorKind::kInvalid, "open",
        "profile \"" + profile + "\" has an aws_access_key_id but no aws_secret_access_key");
  }
  if (found.none() && !environment("AWS_PROFILE").empty() &&
      from_profile(profile, "web_identity_token_file").empty()) {
    throw Error(ErrorKind::kInvalid, "open",
                "AWS_PROFILE is \"" + profile + "\", but no such profile has keys in ~/.aws")
        .hint(
            "put aws_access_key_id and aws_secret_access_key in ~/.aws/credentials; for "
            "single sign-on, run `aws configure export-credentials --format env` first");
  }
  return found;
}

// From the environment or the profile. `role` is empty if neither has a token file.
WebIdentity find_web_identity() {
  WebIdentity identity{environment("AWS_WEB_IDENTITY_TOKEN_FILE"), environment("AWS_ROLE_ARN"),
                       environment("AWS_ROLE_SESSION_NAME")};
  if (identity.token_file.empty()) {
    const std::string profile = profile_name();
    identity = {from_profile(profile, "web_identity_token_file"), from_profile(profile, "role_arn"),
                from_profile(profile, "role_session_name")};
    if (identity.token_file.empty()) return {};
  }
  if (identity.role.empty()) {
    throw Error(ErrorKind::kInvalid, "open",
                "AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN, the role to assume, is not");
  }
  if (identity.session.empty()) identity.session = "evenkeel";
  return identity;
}

}  // namespace

Secret::Secret(std::string_view text) : size_(text.size()) {
  if (text.empty()) return;
  const std::size_t bytes = round_up(text.size(), sys::page_size());
  void* page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw Error::system("open", errno, "no memory for a secret");
  (void)::madvise(page, bytes, MADV_DONTDUMP);
  std::memcpy(page, text.data(), text.size());
  text_ = std::shared_ptr<const char>(static_cast<const char*>(page), [bytes](const char* data) {
    ::explicit_bzero(const_cast<char*>(data), bytes);
    ::munmap(const_cast<char*>(data), bytes);
  });
}

std::string profile_setting(std::string_view file, std::string_view section,
                            std::string_view name) {
  bool inside = false;
  while (!file.empty()) {
    const std::size_t end = std::min(file.find('\n'), file.size());
    std::string_view line = file.substr(0, end);
    file.remove_prefix(std::min(end + 1, file.size()));
    const bool indented = !line.empty() && (line.front() == ' ' || line.front() == '\t');
    line = without_blanks(line);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      const std::size_t close = line.find(']');
      inside = close != line.npos && without_blanks(line.substr(1, close - 1)) == section;
      continue;
    }
    const std::size_t equals = line.find('=');
    if (!inside || indented || equals == line.npos) continue;
    if (without_blanks(line.substr(0, equals)) == name) {
      return std::string(without_blanks(line.substr(equals + 1)));
    }
  }
  return {};
}

std::string profile_region() { return from_profile(profile_name(), "region"); }

Credentials find_aws_credentials(const RemoteSettings& settings, const std::string& region,
                                 bool renew) {
  if (settings.anonymous) return {};
  if (Credentials found = from_environment_keys(); !found.none()) return found;
  if (Credentials found = from_profile_keys(); !found.none()) return found;
  if (const WebIdentity identity = find_web_identity(); !identity.role.empty()) {
    return kept_credentials(identity.role + '\n' + identity.token_file + '\n' + region, renew,
                            [&] { return web_identity_credentials(identity, settings, region); });
  }
  std::string services;
  for (const char* name :
       {"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_EC2_METADATA_DISABLED", "AWS_EC2_METADATA_SERVICE_ENDPOINT"}) {
    services += environment(name) + '\n';
  }
  return kept_credentials(services, renew, [&] {
    Credentials found = container_credentials(settings);
    return found.none() ? machine_credentials(settings) : found;
  });
}

Credentials find_google_credentials() {
  if (const std::string token = environment("GOOGLE_OAUTH_ACCESS_TOKEN"); !token.empty()) {
    Credentials found;
    found.token = Secret(token);
    found.bearer = true;
    found.found_in = "GOOGLE_OAUTH_ACCESS_TOKEN";
    return found;
  }
  const std::string id = environment("GS_HMAC_ACCESS_ID"), secret = environment("GS_HMAC_SECRET");
  if (id.empty() != secret.empty()) {
    throw Error(ErrorKind::kInvalid, "open",
                "only one of GS_HMAC_ACCESS_ID and GS_HMAC_SECRET is set")
        .hint("set both, or neither");
  }
  Credentials found;
  found.key_id = id;
  found.secret = Secret(secret);
  found.found_in = "GS_HMAC_ACCESS_ID";
  return found;
}

}  // namespace evenkeel
