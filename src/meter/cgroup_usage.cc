#include "meter/cgroup_usage.h"

#include <algorithm>

#include "base/cgroup.h"
#include "base/text_file.h"

namespace evenkeel {
namespace {

std::optional<std::uint64_t> read_usage(const CgroupFolder& folder) {
  const char* name = folder.version == 2 ? "/memory.current" : "/memory.usage_in_bytes";
  const auto text = read_text_file(folder.directory + name);
  if (!text) return std::nullopt;
  return leading_number(*text);
}

void read_stat(const CgroupFolder& folder, CgroupUsage& usage) {
  const std::string stat = read_text_file(folder.directory + "/memory.stat").value_or("");
  const auto number = [&](const char* v2, const char* v1) {
    return number_after(stat, folder.version == 2 ? v2 : v1).value_or(0);
  };
  // v1 counts a cgroup alone, and with those below it under total_; v2 always does the latter.
  usage.anon = number("anon", "total_rss");
  usage.file = number("file", "total_cache");
  usage.active_file = number("active_file", "total_active_file");
  usage.inactive_file = number("inactive_file", "total_inactive_file");
}

}  // namespace

std::optional<CgroupUsage> cgroup_usage_below(const std::string& root, pid_t pid) {
  int row = 0;
  for (const CgroupFolder& folder : memory_cgroup_folders(root, pid)) {
    if (folder.version == row) continue;  // an ancestor: what it uses is others' as well
    row = folder.version;
    const auto bytes = read_usage(folder);
    if (!bytes) continue;  // a hierarchy without the memory controller, or the root of v2
    CgroupUsage usage;
    usage.version = folder.version;
    usage.path = folder.path;
    usage.usage = *bytes;
    read_stat(folder, usage);
    for (const CgroupMemory& level : memory_cgroups(root, pid)) {
      if (level.version != usage.version) continue;
      usage.limit = std::min(usage.limit.value_or(level.limit), level.limit);
    }
    return usage;
  }
  return std::nullopt;
}

std::optional<CgroupUsage> cgroup_usage(pid_t pid) { return cgroup_usage_below("", pid); }

}  // namespace evenkeel
