// Where requests for a bucket or a host go, and how they are signed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/per_process.h"
#include "remote/address.h"
#include "remote/credentials.h"
#include "remote/http.h"
#include "remote/settings.h"

namespace evenkeel {

using QueryFields = std::vector<std::pair<std::string, std::string>>;

// Makes requests for all objects of one bucket or one web host. Thread-safe.
class Store {
 public:
  // Looks for credentials. Throws Error (kInvalid).
  Store(const Address& address, RemoteSettings settings);

  // A request for an object or, with `fields`, about its bucket (the key is then ignored). It is
  // signed if there are credentials, and valid for a few minutes.
  HttpRequest request(const Address& object, const QueryFields& fields = {});

  // A request that changes an object, or is about its upload. For `payload_hash` see
  // SignedRequest.
  HttpRequest upload_request(const std::string& method, const Address& object,
                             const QueryFields& fields, const std::string& payload_hash);

  const RemoteSettings& settings() const { return settings_; }
  bool signs() const;
  // Increases whenever the region or the credentials change. Requests carry it.
  std::uint64_t generation() const;
  // Stores the region that a server named. Returns whether it is new.
  bool learn_region(const std::string& region);
  // Looks for credentials again after the server rejected them as expired. Returns whether they are
  // different.
  bool renew_credentials();
  // "signed with keys from the environment (AWS_ACCESS_KEY_ID), region us-east-1"
  std::string describe() const;

 private:
  // How requests are signed. Each process has its own: a child of fork must not wait for a mutex
  // that is locked by a thread of its parent.
  struct Signer {
    Mutex mutex;
    Credentials credentials GUARDED_BY(mutex);
    std::string region GUARDED_BY(mutex);
    std::uint64_t generation GUARDED_BY(mutex) = 1;
    std::int64_t next_renewal GUARDED_BY(mutex) = 0;  // no earlier; seconds since 1970
  };
  std::unique_ptr<Signer> make_signer() const;
  HttpRequest signed_request(HttpRequest request, const Address& asked, const QueryFields& fields,
                             const std::string& payload_hash);
  void sign(HttpRequest& request, const Signer& signer, const std::string& host,
            const std::string& path, const std::string& query,
            const std::string& payload_hash) const REQUIRES(signer.mutex);
  Credentials look_for_credentials(const std::string& region, bool renew = false) const;
  void renew_if_due(Signer& signer) const REQUIRES(signer.mutex);
  std::string base_url(const Address& object, const std::string& region, std::string& host,
                       std::string& path) const;

  const RemoteSettings settings_;
  const Scheme scheme_;
  mutable PerProcess<Signer> signer_;
};

}  // namespace evenkeel
