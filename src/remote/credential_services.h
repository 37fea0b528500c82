// Temporary keys from a service, as pods, containers and machines in a cloud get them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "remote/credentials.h"

namespace evenkeel {

// Exchanges the token in a file for keys of a role, as in a Kubernetes pod with a service account.
// The service's certificate is checked against `settings`. Throws Error if the service refuses.
struct WebIdentity {
  std::string token_file, role, session;
};
Credentials web_identity_credentials(const WebIdentity& identity, const RemoteSettings& settings,
                                     const std::string& region);

// Keys from the service of a container (ECS, EKS); none if the environment names no such service.
// Throws Error if it refuses, or if the token would be sent unencrypted to another machine.
Credentials container_credentials(const RemoteSettings& settings);

// Keys of the role of this machine (IMDSv2); none if this is not a cloud machine, which takes at
// most a second to find out, or if it has no role.
Credentials machine_credentials(const RemoteSettings& settings);

// The last result of `ask` for this key in this process. Calls `ask` if there is none, or if it
// expires soon.
Credentials kept_credentials(const std::string& key, bool renew,
                             const std::function<Credentials()>& ask);

// For tests. Converts "2026-11-16T18:00:00Z" to seconds since 1970.
std::optional<std::int64_t> parse_expiration(std::string_view text);
// Throws Error (kFormat).
Credentials parse_credentials_json(std::string_view json, const std::string& service);
Credentials parse_credentials_xml(std::string_view xml, const std::string& service);

}  // namespace evenkeel
