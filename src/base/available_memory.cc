#include "base/available_memory.h"

#include <unistd.h>

#include "base/cgroup.h"
#include "base/text_file.h"

namespace evenkeel {
namespace {

AvailableMemory machine_memory(const std::string& root) {
  const std::string meminfo = read_text_file(root + "/proc/meminfo").value_or("");
  if (const auto kib = number_after(meminfo, "MemAvailable:")) {
    return {*kib * 1024, "MemAvailable"};
  }
  const long pages = ::sysconf(_SC_AVPHYS_PAGES);
  const long size = ::sysconf(_SC_PAGESIZE);
  return {static_cast<std::uint64_t>(pages > 0 ? pages : 0) * static_cast<std::uint64_t>(size),
          "free physical memory, because /proc/meminfo cannot be read"};
}

}  // namespace

AvailableMemory available_memory_below(const std::string& root) {
  AvailableMemory available = machine_memory(root);
  if (const auto cgroup = tightest_memory_cgroup(root)) {
    if (cgroup->headroom() < available.bytes) {
      available.bytes = cgroup->headroom();
      available.source =
          "memory cgroup v" + std::to_string(cgroup->version) + " limit of " + cgroup->path;
    }
  }
  return available;
}

AvailableMemory available_memory() { return available_memory_below(""); }

}  // namespace evenkeel
