#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string_view>

#include "base/fd.h"
#include "base/text_file.h"
#include "evenkeel/error.h"
#include "evenkeel/profile.h"

namespace evenkeel {
namespace {

namespace fs = std::filesystem;

Error failure(const std::string& path, int code) {
  Error error = Error::system("write report", code).in(path);
  switch (code) {
    case ENOENT:
    case ENOTDIR:
      return std::move(error).hint("create its folder first, or name another file");
    case EISDIR:
      return std::move(error).hint("name a file, such as report.html in that folder");
    case EACCES:
    case EPERM:
    case EROFS:
      return std::move(error).hint("name a file in a folder that this user may write to");
    case ENOSPC:
    case EDQUOT:
      return std::move(error).hint("free some space, or name a file on another disk");
    case EFBIG:
      return std::move(error).hint("raise the limit on the size of files: ulimit -f");
    default:
      return error;
  }
}

// Returns 0 or an errno.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return 0;
}

// Some file systems report only at close that there is no space.
int write_and_close(int fd, std::string_view text) {
  const int code = write_all(fd, text);
  const bool closed = ::close(fd) == 0 || errno == EINTR;
  return code != 0 ? code : closed ? 0 : errno;
}

// These paths name a descriptor that is already open, perhaps of a file that others write to.
// Opening the path again would write from the beginning of the file.
std::optional<int> open_descriptor(std::string_view path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    const auto number = leading_number(path.substr(folder.size()));
    if (number && *number <= INT_MAX) return static_cast<int>(*number);
  }
  return std::nullopt;
}

int write_straight(const std::string& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  return fd < 0 ? errno : write_and_close(fd, text);
}

// Creates a new file in `folder` with the mode that the umask leaves (mkstemp always uses 0600).
// Returns -1 and sets errno if that fails.
int create_temporary(const fs::path& folder, std::string& name) {
  std::random_device random;
  for (;;) {
    name = folder / (".evenkeel-" + std::to_string(random()));
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
}

int write_beside_and_rename(const fs::path& path, std::string_view text) {
  std::string temporary;
  const int fd = create_temporary(path.parent_path(), temporary);
  if (fd < 0) return errno;
  int code = write_and_close(fd, text);
  if (code == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) code = errno;
  if (code != 0) ::unlink(temporary.c_str());
  return code;
}

// Whether the folder cannot be changed. The file may still be writable. EBUSY: the file is a mount
// point, as in containers.
bool is_about_the_folder(int code) {
  return code == EACCES || code == EPERM || code == EROFS || code == EBUSY;
}

int write_file(const std::string& path, std::string_view text) {
  if (const auto descriptor = open_descriptor(path)) return write_all(*descriptor, text);
  struct stat status;
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) return EISDIR;
  if (exists && !S_ISREG(status.st_mode)) return write_straight(path, text);
  std::error_code ignored;
  const fs::path target = exists ? fs::canonical(path, ignored) : fs::path(path);  // links stay
  const int code = write_beside_and_rename(target.empty() ? fs::path(path) : target, text);
  if (!exists || !is_about_the_folder(code)) return code;
  return write_straight(path, text);
}

int why_not_writable(const std::string& path) {
  if (path.empty()) return ENOENT;
  if (open_descriptor(path)) return 0;
  struct stat status;
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) return EISDIR;
  if (exists && ::access(path.c_str(), W_OK) == 0) return 0;
  const fs::path parent = fs::path(path).parent_path(), folder = parent.empty() ? "." : parent;
  if (::stat(folder.c_str(), &status) != 0) return errno;
  if (!S_ISDIR(status.st_mode)) return ENOTDIR;
  return ::access(folder.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
}

}  // namespace

void require_writable(const std::string& path) {
  if (const int code = why_not_writable(path)) throw failure(path, code);
}

void write_report(const std::string& path, const std::string& text) {
  if (const int code = write_file(path, text)) throw failure(path, code);
}

}  // namespace evenkeel
