// Keys that a service hands out for a while: what a pod, a container or a machine in the cloud is
// given instead of keys of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "remote/credentials.h"

namespace evenkeel {

// Exchanges the token in a file for keys of a role: what Kubernetes gives to a pod with a service
// account. The service is asked with the certificates of `settings`. Throws Error where it refuses.
struct WebIdentity {
  std::string token_file, role, session;
};
Credentials web_identity_credentials(const WebIdentity& identity, const RemoteSettings& settings,
                                     const std::string& region);

// From the service beside a container (ECS, EKS), where the environment names one; else none.
// Throws Error where it refuses, or where the address would show the token to a stranger.
Credentials container_credentials(const RemoteSettings& settings);

// Those of the role of this machine, by version 2 of the protocol. None: this is no such machine,
// or it has no role. That takes a second at most.
Credentials machine_credentials(const RemoteSettings& settings);

// What `ask` gave last for this key in this process, unless it expires soon; else it is asked.
Credentials kept_credentials(const std::string& key, bool renew,
                             const std::function<Credentials()>& ask);

// For tests. "2026-11-16T18:00:00Z" in seconds since 1970.
std::optional<std::int64_t> parse_expiration(std::string_view text);
// Throws Error (kFormat).
Credentials parse_credentials_json(std::string_view json, const std::string& service);
Credentials parse_credentials_xml(std::string_view xml, const std::string& service);

}  // namespace evenkeel
