// The guard of file mappings of this process.
#include "evenkeel/guard.h"

#include "c/call.h"

using namespace evenkeel::c;  // NOLINT(google-build-using-namespace)

struct evenkeel_guard {
  explicit evenkeel_guard(const evenkeel::GuardOptions& options) : guard(options) {}
  evenkeel::Guard guard;
};

namespace {

evenkeel::GuardAccess access_of(const Call& c, const char* name) {
  const std::string_view access = name ? name : "auto";
  if (access == "auto") return evenkeel::GuardAccess::kAuto;
  if (access == "random") return evenkeel::GuardAccess::kRandom;
  if (access == "sequential") return evenkeel::GuardAccess::kSequential;
  if (access == "leave") return evenkeel::GuardAccess::kLeave;
  throw c.wrong("there is no access \"" + std::string(access) + "\"")
      .hint("use auto, random, sequential or leave");
}

}  // namespace

int evenkeel_guard_new(const evenkeel_guard_options* options, evenkeel_guard** guard) {
  return make(__func__, guard, [&](const Call& c) {
    const evenkeel_guard_options given = c.given(&c.need(options, "options"), "options");
    return std::make_unique<evenkeel_guard>(
        evenkeel::GuardOptions{.budget = given.budget,
                               .keep_cache = given.keep_cache != 0,
                               .access = access_of(c, given.access)});
  });
}

int evenkeel_guard_add(evenkeel_guard* guard, const evenkeel_guard_mapping* mapping) {
  return call(__func__, [&](const Call& c) {
    const evenkeel_guard_mapping given = c.given(&c.need(mapping, "mapping"), "mapping");
    if (given.fd < 0) throw c.wrong("mapping->fd is not a descriptor: " + std::to_string(given.fd));
    c.need(guard, "guard")
        .guard.add({.address = given.address,
                    .length = given.length,
                    .fd = c.number<int>(static_cast<std::uint64_t>(given.fd), "mapping->fd"),
                    .file_offset = given.file_offset,
                    .removed_before_unmap = given.removed_before_unmap != 0,
                    .closed_after_remove = given.closed_after_remove != 0});
  });
}

int evenkeel_guard_remove(evenkeel_guard* guard, const void* address) {
  return call(__func__, [&](const Call& c) {
    if (c.need(guard, "guard").guard.remove(address)) return;
    throw evenkeel::Error(evenkeel::ErrorKind::kIndex, "evenkeel_guard_remove",
                          "no mapping at this address is guarded");
  });
}

int evenkeel_guard_get_report(const evenkeel_guard* guard, evenkeel_guard_report* report) {
  return call(__func__, [&](const Call& c) {
    c.check_result(report, "report");
    const evenkeel::GuardReport found = c.need(guard, "guard").guard.report();
    std::string& failures = OfThread<std::string>::get();
    failures.clear();
    for (const std::string& failure : found.failures) failures += failure + "\n";
    c.give({0, found.budget, found.mappings, found.cached, found.peak_cached, found.bytes_released,
            found.bytes_fetched, found.file_bytes, failures.c_str()},
           report);
  });
}

void evenkeel_guard_free(evenkeel_guard* guard) { delete guard; }
