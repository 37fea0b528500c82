// What this machine allows, one fact at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace evenkeel::cli {

enum class Health { kOk, kLimited, kMissing };
std::string health_name(Health health);

struct Check {
  std::string name;
  Health health = Health::kOk;
  std::string found;   // what is there
  std::string effect;  // what Evenkeel does because of it
  std::string change;  // how to change it; empty when there is no need
};

// The system's message for an errno.
inline std::string error_text(int code) { return std::generic_category().message(code); }

// The machine: kernel, io_uring, limits, memory, cgroups.
std::vector<Check> check_system();
// The disk under `path`, a file or a folder: O_DIRECT, page cache, readahead. Throws Error if
// `path` does not exist.
std::vector<Check> check_disk(const std::string& path);
// The server of an object, by its URL: what it needs, how soon it answers, how fast it is.
std::vector<Check> check_remote(const std::string& url);

}  // namespace evenkeel::cli
