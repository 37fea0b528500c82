#include "cli/demo_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/fd.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

constexpr std::uint64_t kToSpare = 64_MiB;  // the disk should not be filled to the brim

std::vector<std::string> places() {
  std::vector<std::string> folders;
  if (const char* given = std::getenv("TMPDIR"); given && *given) folders.push_back(given);
  folders.push_back("/var/tmp");
  std::error_code ignored;
  folders.push_back(std::filesystem::current_path(ignored).string());
  folders.push_back("/tmp");
  return folders;
}

// Empty: it will do.
std::string what_it_lacks(const std::string& folder, std::uint64_t bytes) {
  struct statvfs status;
  if (::statvfs(folder.c_str(), &status) != 0) return std::generic_category().message(errno);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return "may not be written";
  const std::uint64_t room = status.f_bavail * status.f_frsize;
  if (room >= bytes + kToSpare) return "";
  return fmt::format("has {} free, needed are {} + {} to spare", format_size(room),
                     format_size(bytes), format_size(kToSpare));
}

// Numbers that no compression or deduplication below can fold: splitmix64, as floats in [0, 1).
void fill(std::vector<float>& values, std::uint64_t& state) {
  for (float& value : values) {
    std::uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    value = static_cast<float>((z ^ (z >> 31)) >> 40) * 0x1p-24f;
  }
}

void write_all(int fd, const char* data, std::size_t length, const std::string& path) {
  while (length > 0) {
    const ssize_t count = ::write(fd, data, length);
    check_interrupt();
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error::system("write", errno).in(path);
    data += count;
    length -= static_cast<std::size_t>(count);
  }
}

}  // namespace

bool lies_in_memory(const std::string& folder) {
  struct statfs status;
  if (::statfs(folder.c_str(), &status) != 0) return false;
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

std::string demo_folder(const std::string& wanted, std::uint64_t bytes) {
  const auto folders = wanted.empty() ? places() : std::vector<std::string>{wanted};
  std::string in_memory, problems;
  for (const std::string& folder : folders) {
    const std::string lacks = what_it_lacks(folder, bytes);
    if (!lacks.empty()) {
      problems += fmt::format("{}{} {}", problems.empty() ? "" : "; ", folder, lacks);
    } else if (!lies_in_memory(folder)) {
      return folder;
    } else if (in_memory.empty()) {
      in_memory = folder;
    }
  }
  if (!in_memory.empty()) return in_memory;
  throw Error(ErrorKind::kInvalid, "demo", "no place for the file: " + problems)
      .hint("name a folder with --dir, or a smaller file with --size or --budget");
}

DemoFile::DemoFile(const std::string& folder, std::uint64_t rows) {
  path_ = folder + "/evenkeel-demo-XXXXXX.f32";
  const Fd fd(::mkostemps(path_.data(), 4, O_CLOEXEC));
  if (!fd) throw Error::system("make the demo's file", errno).in(folder);
  try {
    write(fd.get(), rows);
  } catch (...) {
    ::unlink(path_.c_str());
    throw;
  }
}

DemoFile::~DemoFile() {
  if (!kept_) ::unlink(path_.c_str());
}

void DemoFile::write(int fd, std::uint64_t rows) {
  constexpr std::uint64_t kRowsAtOnce = 4096;
  std::vector<float> values(kRowsAtOnce * kDemoColumns);
  std::uint64_t state = 1;
  Progress progress;
  for (std::uint64_t row = 0; row < rows; row += kRowsAtOnce) {
    const std::uint64_t count = std::min(kRowsAtOnce, rows - row);
    fill(values, state);
    write_all(fd, reinterpret_cast<const char*>(values.data()),
              count * kDemoColumns * sizeof(float), path_);
    if (progress.due()) {
      progress.show(fmt::format("writing {}  {}", bar(double(row) / double(rows)), path_));
    }
  }
  progress.show("waiting for the disk");
  if (::fsync(fd) != 0) throw Error::system("sync", errno).in(path_);
}

}  // namespace evenkeel::cli
