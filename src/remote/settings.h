// Settings for servers, from the environment. docs/remote.md lists the variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace evenkeel {

struct RemoteSettings {
  // Where to find buckets, and how to sign requests.
  std::string s3_endpoint;         // AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL; empty: AWS itself
  std::string gs_endpoint;         // STORAGE_EMULATOR_HOST; empty: Google itself
  std::string region;              // AWS_REGION, AWS_DEFAULT_REGION, the profile's, us-east-1
  std::optional<bool> path_style;  // EVENKEEL_S3_PATH_STYLE; default: with an endpoint
  bool anonymous = false;          // EVENKEEL_ANONYMOUS: requests are not signed
  bool requester_pays = false;     // EVENKEEL_REQUESTER_PAYS
  std::string ca_file;             // SSL_CERT_FILE: certificates to trust; empty: the system's
  std::string aws_ca_bundle;       // AWS_CA_BUNDLE: the same, for s3
  // Limits and retries.
  unsigned connections = 64;       // EVENKEEL_CONNECTIONS: requests in flight
  double requests_per_second = 0;  // EVENKEEL_REQUESTS_PER_SECOND; 0: no limit
  double stall_s = 20;             // EVENKEEL_STALL_TIMEOUT: longest time without a byte
  double deadline_s = 300;         // EVENKEEL_DEADLINE: longest time without progress
  unsigned attempts = 10;          // EVENKEEL_ATTEMPTS: of one request, without progress
  double retry_delay_s = 0.1;      // EVENKEEL_RETRY_DELAY: the first delay; doubles each time
  bool hedge = true;               // EVENKEEL_HEDGE: a second request if the first is late

  // Throws Error (kInvalid) if a variable has an invalid value.
  static RemoteSettings from_environment();
};

// An environment variable; empty if it is not set.
std::string environment(const char* name);

}  // namespace evenkeel
