// What the environment says about reading from servers. docs/remote.md lists the variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace evenkeel {

struct RemoteSettings {
  // Where buckets are.
  std::string s3_endpoint;         // AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL; empty: AWS itself
  std::string gs_endpoint;         // STORAGE_EMULATOR_HOST; empty: Google itself
  std::string region;              // AWS_REGION, AWS_DEFAULT_REGION, the profile's, us-east-1
  std::optional<bool> path_style;  // EVENKEEL_S3_PATH_STYLE; default: with an endpoint
  bool anonymous = false;          // EVENKEEL_ANONYMOUS: requests are not signed
  bool requester_pays = false;     // EVENKEEL_REQUESTER_PAYS
  std::string ca_file;             // SSL_CERT_FILE: certificates to trust; empty: the system's
  std::string aws_ca_bundle;       // AWS_CA_BUNDLE: the same, for s3
  // How hard to try.
  unsigned connections = 64;       // EVENKEEL_CONNECTIONS: requests in flight
  double requests_per_second = 0;  // EVENKEEL_REQUESTS_PER_SECOND; 0: no limit
  double stall_s = 20;             // EVENKEEL_STALL_TIMEOUT: without a byte, a request has failed
  double deadline_s = 300;         // EVENKEEL_DEADLINE: without progress, the read has failed
  unsigned attempts = 10;          // EVENKEEL_ATTEMPTS, of one request, without progress
  double retry_delay_s = 0.1;      // EVENKEEL_RETRY_DELAY: of the first; doubles each time
  bool hedge = true;               // EVENKEEL_HEDGE: a second request when the first is late

  // Throws Error (kInvalid) for a variable that is not what it should be.
  static RemoteSettings from_environment();
};

// A variable of the environment; empty if it is not set.
std::string environment(const char* name);

}  // namespace evenkeel
