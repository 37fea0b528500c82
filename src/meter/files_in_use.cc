#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <map>
#include <set>

#include "base/text_file.h"
#include "evenkeel/meter.h"
#include "meter/proc.h"
#include "meter/proc_maps.h"

namespace evenkeel {
namespace {

using Identity = std::pair<dev_t, ino_t>;

bool is_kernel_folder(std::string_view path) {
  return path.starts_with("/dev/") || path.starts_with("/proc/") || path.starts_with("/sys/");
}

std::optional<struct stat> regular_file(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return status;
}

std::optional<std::string> link_target(const std::string& link) {
  std::string target(PATH_MAX, '\0');
  const ssize_t length = ::readlink(link.c_str(), target.data(), target.size());
  if (length <= 0) return std::nullopt;
  target.resize(static_cast<std::size_t>(length));
  return target;
}

// Collects files under paths that lead to them. If a path leads elsewhere, the file was deleted or
// its path was given to another file. The suffix " (deleted)" is not checked: it can be the end of
// a real name.
class Found {
 public:
  explicit Found(std::uint64_t least_size) : least_size_(least_size) {}

  void add(const std::string& path, const struct stat& wanted) {
    if (is_kernel_folder(path) || static_cast<std::uint64_t>(wanted.st_size) < least_size_) return;
    const auto named = regular_file(path);
    if (!named || named->st_dev != wanted.st_dev || named->st_ino != wanted.st_ino) return;
    if (!seen_.insert({wanted.st_dev, wanted.st_ino}).second) return;
    files_.push_back(
        {path, static_cast<std::uint64_t>(wanted.st_size), wanted.st_dev, wanted.st_ino});
  }
  std::vector<FileInUse> take() { return std::move(files_); }

 private:
  const std::uint64_t least_size_;
  std::set<Identity> seen_;
  std::vector<FileInUse> files_;
};

// The device in maps may differ from the device that stat returns, so the path must lead to the
// inode.
void add_mapped(std::uint64_t inode, std::string_view mapped, Found& found) {
  for (const std::string& path : {std::string(mapped), unescape_newlines(mapped)}) {
    const auto named = regular_file(path);
    if (named && named->st_ino == inode) return found.add(path, *named);
  }
}

void add_mapped_files(std::string_view maps, Found& found) {
  std::map<std::pair<std::uint64_t, std::string_view>, bool> programs;  // by inode and path
  std::string_view line;
  while (take_line(maps, line)) {
    const auto mapped = parse_maps_line(line);
    if (!mapped || !mapped->has_file() || is_kernel_folder(mapped->path)) continue;
    programs[{mapped->vma.inode, mapped->path}] |= mapped->vma.executable;
  }
  for (const auto& [file, program] : programs) {
    if (!program) add_mapped(file.first, file.second, found);
  }
}

void add_open_files(pid_t pid, Found& found) {
  const std::string folder = proc_path(pid, "fd/");
  for (const int fd : numbered_entries(folder)) {
    const std::string link = folder + std::to_string(fd);
    struct stat self;  // the permissions of the link show how the descriptor was opened
    if (::lstat(link.c_str(), &self) != 0 || (self.st_mode & S_IRUSR) == 0) continue;
    const auto target = link_target(link);
    const auto status = target ? regular_file(link) : std::nullopt;
    if (status) found.add(*target, *status);
  }
}

}  // namespace

std::vector<FileInUse> files_in_use(pid_t pid, std::uint64_t least_size) {
  Found found(least_size);
  const auto maps = read_text_file(proc_path(pid, "maps"));
  if (!maps) return {};
  add_mapped_files(*maps, found);
  add_open_files(pid, found);
  return found.take();
}

}  // namespace evenkeel
