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

// Thread-safe. Serves all objects of one bucket, or of one web host.
class Store {
 public:
  // Looks for credentials. Throws Error (kInvalid).
  Store(const Address& address, RemoteSettings settings);

  // A request for an object: without `fields` the object itself, with them a question about its
  // bucket (`key` is then ignored). Signed, if there are credentials; good for a few minutes.
  HttpRequest request(const Address& object, const QueryFields& fields = {});

  // A request that changes an object, or is about its upload; `payload_hash` is as in
  // SignedRequest.
  HttpRequest upload_request(const std::string& method, const Address& object,
                             const QueryFields& fields, const std::string& payload_hash);

  const RemoteSettings& settings() const { return settings_; }
  bool signs() const;
  // Grows whenever requests are signed in another way than before; requests carry it.
  std::uint64_t generation() const;
  // Notes the region that a server names; whether that is news.
  bool learn_region(const std::string& region);
  // Looks for credentials again, after the server called them expired; whether there are others.
  bool renew_credentials();
  // "signed with keys from the environment (AWS_ACCESS_KEY_ID), region us-east-1"
  std::string describe() const;

 private:
  // How requests are signed. Each process finds out for itself: a child of fork must not wait for
  // a thread that it does not have.
  struct Signer {
    Mutex mutex;
    Credentials credentials GUARDED_BY(mutex);
    std::string region GUARDED_BY(mutex);
    std::uint64_t generation GUARDED_BY(mutex) = 1;
    std::int64_t next_renewal GUARDED_BY(mutex) = 0;  // no sooner; seconds since 1970
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
