// Opening objects on servers: their size and version, and the first bytes of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "remote/object.h"
#include "remote/transfers.h"

namespace evenkeel {

// What one call of `open` has found out about URLs. While it lives, each URL that its thread opens
// is requested once, and URLs that are known beforehand are requested together. Openings may be
// nested: all then use the outermost one.
class RemoteOpening {
 public:
  RemoteOpening();
  // Looks these up. Paths that are not URLs are ignored.
  explicit RemoteOpening(const std::vector<std::string>& urls);
  ~RemoteOpening();
  RemoteOpening(const RemoteOpening&) = delete;
  RemoteOpening& operator=(const RemoteOpening&) = delete;

  void look_up(const std::vector<std::string>& urls);
  // The object; empty if there is none that may be read. Throws Error.
  std::shared_ptr<const RemoteObject> find(const std::string& url);
  // The same, but throws Error (kSystem: ENOENT, EACCES) if there is none.
  std::shared_ptr<const RemoteObject> get(const std::string& url);
  std::shared_ptr<Store> store_of(const Address& address);
  Transfers& transfers();
  static RemoteOpening* current();

 private:
  struct Found {
    std::shared_ptr<const RemoteObject> object;  // if empty, `missing` says why
    HttpAnswer missing;
  };
  const Found& look(const std::string& url);

  RemoteOpening* const outer_;
  std::map<std::string, Found> found_;
  std::map<std::string, std::shared_ptr<Store>> stores_;
  TransferTotals totals_;
  std::unique_ptr<Transfers> transfers_;
};

// Opens one object, in the current RemoteOpening or in a new one.
std::shared_ptr<const RemoteObject> open_object(const std::string& url);
// Whether the object exists and may be read.
bool object_exists(const std::string& url);
// Reads bytes offset .. offset+length-1 of an object, or those of them that it has, in the current
// RemoteOpening or in a new one. Throws Error.
std::string read_object(const RemoteObject& object, std::uint64_t offset, std::size_t length);

}  // namespace evenkeel
