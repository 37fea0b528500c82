// Who signs requests: keys from the environment, from profiles in ~/.aws, or from a service.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "remote/settings.h"

namespace evenkeel {

// Text that does not appear in core dumps: a page of its own under MADV_DONTDUMP, wiped when it
// goes.
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

// Keys are renewed so many seconds before they expire.
inline constexpr std::int64_t kRenewBefore = 300;

struct Credentials {
  std::string key_id = {};
  Secret secret = {}, token = {};  // token: of a session, or a bearer token
  bool bearer = false;             // gs: `token` alone is sent
  std::int64_t expires = 0;        // seconds since 1970; 0: never
  std::string found_in = {};       // "the environment (AWS_ACCESS_KEY_ID)"; for doctor and errors
  bool none() const { return key_id.empty() && !bearer; }
};

// A section of ~/.aws/credentials or ~/.aws/config: the value of a setting, empty if it is not
// there. The text comes from a file of the user's, but anything may be in it.
std::string profile_setting(std::string_view file, std::string_view section, std::string_view name);

// The region of the profile in use, if it names one.
std::string profile_region();

// For s3: the environment, the profile (AWS_PROFILE), web identity (AWS_WEB_IDENTITY_TOKEN_FILE),
// the container's service, the machine's (unless AWS_EC2_METADATA_DISABLED). None found: `none()`.
// Throws Error (kInvalid) where a profile is named and not there, or keys are given by half.
// Throws Error where a service that is named does not give any. Keys of services are kept until
// they are soon to expire; `renew`: they are asked for others in any case.
Credentials find_aws_credentials(const RemoteSettings& settings, const std::string& region,
                                 bool renew = false);
// For gs: GOOGLE_OAUTH_ACCESS_TOKEN, or GS_HMAC_ACCESS_ID with GS_HMAC_SECRET.
Credentials find_google_credentials();

}  // namespace evenkeel
