#include "base/cgroup.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/text_file.h"

namespace evenkeel {
namespace {

// v1 reports 2^63 minus a page for "no limit".
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool contains(const std::vector<std::string_view>& parts, std::string_view wanted) {
  return std::find(parts.begin(), parts.end(), wanted) != parts.end();
}

// mountinfo escapes blanks and backslashes in names in octal, for example as \040.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto octal = [&](std::size_t k) { return text[k] >= '0' && text[k] <= '7'; };
    if (text[i] == '\\' && i + 3 < text.size() && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// The part of `path` below the mount, "" for the mount itself. In a container, the mount may show
// only the container's own cgroup while `path` is a path outside it. Then the mount is the best
// answer.
std::string below_mount(const std::string& path, const CgroupMount& mount) {
  if (path.starts_with("/..")) return "";
  const std::string base = mount.root == "/" ? "" : mount.root;
  if (!path.starts_with(base)) return "";
  std::string rest = path.substr(base.size());
  if (rest == "/" || rest.empty() || rest[0] != '/') return "";
  return rest;
}

bool is_directory(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::uint64_t number_in(const std::string& path, std::uint64_t otherwise) {
  const auto text = read_text_file(path);
  if (!text) return otherwise;
  return leading_number(*text).value_or(otherwise);  // "max" is not a number
}

// Appends the cgroup at `path` and its ancestors up to the mount.
void climb(const CgroupMount& mount, const std::string& path, const std::string& root,
           std::vector<CgroupFolder>& out) {
  const std::string point = root + mount.point;
  std::string below = below_mount(path, mount);
  if (!is_directory(point + below)) below.clear();
  for (;;) {
    const std::string path_of_level =
        mount.root == "/" && !below.empty() ? below : mount.root + below;
    out.push_back({mount.version, path_of_level, point + below, below.empty()});
    if (below.empty()) return;
    below.erase(below.rfind('/'));
  }
}

}  // namespace

std::uint64_t CgroupMemory::headroom() const {
  const std::uint64_t held = usage - std::min(usage, inactive_file);
  return limit - std::min(limit, held);
}

CgroupPaths parse_cgroup_paths(std::string_view text) {
  CgroupPaths paths;
  std::string_view line;
  while (take_line(text, line)) {
    const std::size_t first = line.find(':');
    if (first == std::string_view::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const auto controllers = split(line.substr(first + 1, second - first - 1), ',');
    const std::string path(line.substr(second + 1));
    if (contains(controllers, "memory")) paths.v1 = path;
    if (line.substr(0, second + 1) == "0::") paths.v2 = path;
  }
  return paths;
}

std::vector<CgroupMount> parse_cgroup_mounts(std::string_view text) {
  // 35 31 0:32 ROOT POINT options [tags...] - TYPE SOURCE SUPER-OPTIONS
  std::vector<CgroupMount> mounts;
  std::string_view line;
  while (take_line(text, line)) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto before = split(line.substr(0, dash), ' ');
    const auto after = split(line.substr(dash + 3), ' ');
    if (before.size() < 6 || after.size() < 3) continue;
    const bool v2 = after[0] == "cgroup2";
    const bool v1 = after[0] == "cgroup" && contains(split(after.back(), ','), "memory");
    if (v1 || v2) mounts.push_back({v2 ? 2 : 1, unescape(before[3]), unescape(before[4])});
  }
  return mounts;
}

std::vector<CgroupFolder> memory_cgroup_folders(const std::string& root, pid_t pid) {
  const std::string process = pid == 0 ? "self" : std::to_string(pid);
  const auto paths =
      parse_cgroup_paths(read_text_file(root + "/proc/" + process + "/cgroup").value_or(""));
  const auto mounts =
      parse_cgroup_mounts(read_text_file(root + "/proc/self/mountinfo").value_or(""));
  std::vector<CgroupFolder> folders;
  bool seen[3] = {};
  for (const CgroupMount& mount : mounts) {
    const std::string& path = mount.version == 1 ? paths.v1 : paths.v2;
    if (path.empty() || seen[mount.version] || !is_directory(root + mount.point)) continue;
    seen[mount.version] = true;
    climb(mount, path, root, folders);
  }
  return folders;
}

CgroupMemory memory_of(const CgroupFolder& folder) {
  const std::string& directory = folder.directory;
  CgroupMemory level;
  level.version = folder.version;
  level.path = folder.path;
  const std::string stat = read_text_file(directory + "/memory.stat").value_or("");
  if (level.version == 2) {
    level.limit = std::min(number_in(directory + "/memory.max", kNoLimit),
                           number_in(directory + "/memory.high", kNoLimit));
    level.usage = number_in(directory + "/memory.current", 0);
    level.inactive_file = number_after(stat, "inactive_file").value_or(0);
  } else {
    level.limit = number_in(directory + "/memory.limit_in_bytes", kNoLimit);
    if (folder.top) {
      level.limit =
          std::min(level.limit, number_after(stat, "hierarchical_memory_limit").value_or(kNoLimit));
    }
    level.usage = number_in(directory + "/memory.usage_in_bytes", 0);
    level.inactive_file = number_after(stat, "total_inactive_file").value_or(0);
  }
  return level;
}

bool CgroupMemory::has_limit() const { return limit < kNoLimit; }

std::vector<CgroupMemory> memory_cgroups(const std::string& root, pid_t pid) {
  std::vector<CgroupMemory> levels;
  for (const CgroupFolder& folder : memory_cgroup_folders(root, pid)) {
    CgroupMemory level = memory_of(folder);
    if (level.has_limit()) levels.push_back(std::move(level));
  }
  return levels;
}

std::optional<CgroupMemory> tightest_memory_cgroup(const std::string& root) {
  const auto levels = memory_cgroups(root);
  const auto least =
      std::min_element(levels.begin(), levels.end(),
                       [](const auto& a, const auto& b) { return a.headroom() < b.headroom(); });
  if (least == levels.end()) return std::nullopt;
  return *least;
}

}  // namespace evenkeel
