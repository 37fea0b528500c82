// Credentials for signing requests: from the environment, from profiles in ~/.aws, or from a
// service.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "remote/settings.h"

namespace evenkeel {

// Text that does not appear in core dumps. It is stored in its own page with MADV_DONTDUMP, which
// is overwritten when it is freed.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string_view text);
  std::string_view view() const { return {text_.get(), size_}; }
  bool empty() const { return size_ == 0; }

 private:
  std::shared_ptr<const char> text_;
  std::size_t size_ = 0;
};

// Keys are renewed this many seconds before they expire.
inline constexpr std::int64_t kRenewBefore = 300;

struct Credentials {
  std::string key_id = {};
  Secret secret = {}, token = {};  // token: a session token or a bearer token
  bool bearer = false;             // gs: only `token` is sent
  std::int64_t expires = 0;        // seconds since 1970; 0: never
  std::string found_in = {};       // "the environment (AWS_ACCESS_KEY_ID)"; for doctor and errors
  bool none() const { return key_id.empty() && !bearer; }
};

// The value of a setting in a section of ~/.aws/credentials or ~/.aws/config; empty if it is
// missing. The text is not trusted.
std::string profile_setting(std::string_view file, std::string_view section, std::string_view name);

// The region of the current profile; empty if it names none.
std::string profile_region();

// For s3. Tries, in this order: the environment, the profile (AWS_PROFILE), web identity
// (AWS_WEB_IDENTITY_TOKEN_FILE), the container's service, the machine's service (unless
// AWS_EC2_METADATA_DISABLED). If nothing is found, the result is `none()`. Throws Error (kInvalid)
// if a named profile is missing or has no keys, or if only half of a key pair is set; Error if a
// configured service refuses. Keys from services are cached until shortly before they expire;
// `renew` requests new ones in any case.
Credentials find_aws_credentials(const RemoteSettings& settings, const std::string& region,
                                 bool renew = false);
// For gs: GOOGLE_OAUTH_ACCESS_TOKEN, or GS_HMAC_ACCESS_ID with GS_HMAC_SECRET.
Credentials find_google_credentials();

}  // namespace evenkeel
