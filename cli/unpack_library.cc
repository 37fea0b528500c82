#include "cli/unpack_library.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "base/fd.h"
#include "base/hash.h"
#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

namespace fs = std::filesystem;
constexpr mode_t kOthersMayWrite = S_IWGRP | S_IWOTH;

std::string reason(int code) { return std::generic_category().message(code); }

// A place that cannot be used, and why.
struct Unsafe {
  std::string why;
};

struct stat status_of(int fd, const std::string& path) {
  struct stat status;
  if (::fstat(fd, &status) != 0) throw Unsafe{path + ": " + reason(errno)};
  return status;
}

// Opens the folder `name` in `parent`, for openat only (O_PATH). Does not follow a link.
Fd enter(int parent, const std::string& name, const std::string& path) {
  Fd fd(::openat(parent, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) throw Unsafe{path + ": " + reason(errno)};
  return fd;
}

// Nobody but this user and root may rename or replace what lies in this folder. In a sticky folder
// others can do that with their own entries only, and the owner of the entry is checked next.
void check_ancestor(int fd, const std::string& path) {
  const struct stat status = status_of(fd, path);
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    throw Unsafe{fmt::format("{} belongs to user {}", path, status.st_uid)};
  }
  if ((status.st_mode & kOthersMayWrite) != 0 && (status.st_mode & S_ISVTX) == 0) {
    throw Unsafe{path + " can be written by others and is not sticky"};
  }
}

// An open folder, and its path from / without links.
struct Folder {
  Fd fd;
  std::string path;
};

std::string below(const std::string& path, const std::string& name) {
  return path == "/" ? path + name : path + "/" + name;
}

// Checks every folder from / down to `resolved`, each opened from the one above it.
Folder open_checked(const fs::path& resolved) {
  Folder at{enter(AT_FDCWD, "/", "/"), "/"};
  check_ancestor(at.fd.get(), at.path);
  for (const fs::path& name : resolved.relative_path()) {
    at.path = below(at.path, name.string());
    at.fd = enter(at.fd.get(), name.string(), at.path);
    check_ancestor(at.fd.get(), at.path);
  }
  return at;
}

void make_folder(const Folder& parent, const std::string& name) {
  if (::mkdirat(parent.fd.get(), name.c_str(), 0700) != 0 && errno != EEXIST) {
    throw Unsafe{below(parent.path, name) + ": " + reason(errno)};
  }
}

// The parent folder of `place`. Nothing is created before all folders above it are checked.
Folder open_parent(const UnpackPlace& place) {
  const fs::path parent = fs::path(place.path).parent_path();
  const std::string last = parent.filename().string();
  std::error_code error;
  fs::path resolved = fs::canonical(parent, error);
  const bool make = place.make_parent && error == std::errc::no_such_file_or_directory;
  if (make) resolved = fs::canonical(parent.parent_path(), error);
  if (error) throw Unsafe{parent.string() + ": " + error.message()};
  const fs::path whole = (make ? resolved / last : resolved) / fs::path(place.path).filename();
  if (!can_be_preloaded(whole.string())) {
    throw Unsafe{whole.string() + " has a space, a colon or a dollar sign in its name"};
  }
  Folder folder = open_checked(resolved);
  if (!make) return folder;
  make_folder(folder, last);
  folder.path = below(folder.path, last);
  folder.fd = enter(folder.fd.get(), last, folder.path);
  check_ancestor(folder.fd.get(), folder.path);
  return folder;
}

Folder open_private_folder(const UnpackPlace& place) {
  const Folder parent = open_parent(place);
  const std::string name = fs::path(place.path).filename().string();
  make_folder(parent, name);
  const std::string path = below(parent.path, name);
  Fd fd(::openat(parent.fd.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) throw Unsafe{path + ": " + reason(errno)};
  const struct stat status = status_of(fd.get(), path);
  if (status.st_uid != ::geteuid()) {
    throw Unsafe{fmt::format("{} belongs to user {}", path, status.st_uid)};
  }
  if ((status.st_mode & kOthersMayWrite) != 0) throw Unsafe{path + " can be written by others"};
  struct statvfs system;
  if (::fstatvfs(fd.get(), &system) == 0 && (system.f_flag & ST_NOEXEC) != 0) {
    throw Unsafe{path + " is on a filesystem mounted noexec"};
  }
  return {std::move(fd), path};
}

bool holds(int folder, const std::string& name, std::string_view bytes) {
  const Fd fd(::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status;
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_uid != ::geteuid() || (status.st_mode & kOthersMayWrite) != 0 ||
      static_cast<std::uint64_t>(status.st_size) != bytes.size()) {
    return false;
  }
  char block[4096];
  while (!bytes.empty()) {
    const ssize_t count = ::read(fd.get(), block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    const std::string_view got(block, static_cast<std::size_t>(count));
    if (!bytes.starts_with(got)) return false;
    bytes.remove_prefix(got.size());
  }
  return true;
}

void write_whole(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Unsafe{path + ": " + reason(errno)};
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

// Writes under another name first: a program that starts meanwhile finds the complete library or
// none.
void put(int folder, const std::string& name, std::string_view bytes, const std::string& path) {
  const std::string half = fmt::format("{}.{:08x}", name, std::random_device()());
  const Fd fd(::openat(folder, half.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) throw Unsafe{path + ": " + reason(errno)};
  try {
    write_whole(fd.get(), bytes, path);
    if (::fchmod(fd.get(), 0500) != 0 ||
        ::renameat(folder, half.c_str(), folder, name.c_str()) != 0) {
      throw Unsafe{path + ": " + reason(errno)};
    }
  } catch (...) {
    ::unlinkat(folder, half.c_str(), 0);
    throw;
  }
}

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value == '/' ? value : nullptr;  // relative paths are ignored
}

}  // namespace

bool can_be_preloaded(const std::string& path) {
  return path.find_first_of(" :$") == std::string::npos;
}

std::vector<UnpackPlace> unpack_places() {
  std::vector<UnpackPlace> places;
  if (const char* cache = variable("XDG_CACHE_HOME")) {
    places.push_back({std::string(cache) + "/evenkeel", true});
  } else if (const char* home = variable("HOME")) {
    places.push_back({std::string(home) + "/.cache/evenkeel", true});
  }
  if (const char* runtime = variable("XDG_RUNTIME_DIR")) {
    places.push_back({std::string(runtime) + "/evenkeel"});
  }
  const char* temporary = variable("TMPDIR");
  const std::string own = fmt::format("/evenkeel-{}", ::geteuid());
  if (temporary != nullptr) places.push_back({temporary + own});
  places.push_back({"/tmp" + own});
  return places;
}

std::string unpack_library(std::string_view bytes, const std::vector<UnpackPlace>& places) {
  const std::string name =
      fmt::format("libevenkeel_guard-{:016x}.so", xxh3(std::as_bytes(std::span(bytes))));
  std::string problems;
  for (const UnpackPlace& place : places) {
    try {
      const Folder folder = open_private_folder(place);
      std::string path = below(folder.path, name);
      if (!holds(folder.fd.get(), name, bytes)) put(folder.fd.get(), name, bytes, path);
      return path;
    } catch (const Unsafe& unsafe) {
      problems += (problems.empty() ? "" : "; ") + unsafe.why;
    }
  }
  throw Error(ErrorKind::kInvalid, "guard", "no safe place to unpack its library: " + problems)
      .hint("set XDG_CACHE_HOME to a folder of your own");
}

}  // namespace evenkeel::cli
