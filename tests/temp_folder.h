// For tests: a folder that is removed at the end of its scope, files in it, and random bytes.
#pragma once

#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace evenkeel {

class TempFolder {
 public:
  explicit TempFolder(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string name = (parent / "evenkeel-test-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp " + name);
    root_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  const std::string& root() const { return root_; }
  std::string path(std::string_view name) const { return root_ + "/" + std::string(name); }

  // Creates the folders of the path, and returns the whole path.
  std::string write(std::string_view name, std::string_view bytes) const {
    const std::string full = path(name);
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    std::ofstream out(full, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) throw std::runtime_error("write " + full);
    return full;
  }
  // The same, and flushes it to the disk, because dirty pages cannot be dropped from the cache.
  std::string write_through(std::string_view name, std::string_view bytes) const {
    const std::string full = write(name, bytes);
    const int fd = ::open(full.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ::fsync(fd) != 0) throw std::runtime_error("fsync " + full);
    ::close(fd);
    return full;
  }

  // For tests that become another user.
  void open_to_everyone() const {
    std::filesystem::permissions(root_, std::filesystem::perms(0755));
  }

 private:
  std::string root_;
};

// The same bytes for the same seed, on every machine.
inline std::string random_bytes(std::size_t count, std::uint64_t seed = 1) {
  // SplitMix64, in one loop without calls: tests are not optimised, and mt19937 took a fifth of
  // their time under ThreadSanitizer.
  std::string bytes(count + 8, '\0');
  char* at = bytes.data();
  for (std::size_t i = 0; i < count; i += 8) {
    seed += 0x9e3779b97f4a7c15;
    std::uint64_t word = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9;
    word = (word ^ word >> 27) * 0x94d049bb133111eb;
    word ^= word >> 31;
    std::memcpy(at + i, &word, sizeof word);
  }
  bytes.resize(count);
  return bytes;
}

inline bool is_in_memory_filesystem(const std::string& folder) {
  struct statfs status;
  if (::statfs(folder.c_str(), &status) != 0) return true;
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

// A folder for tests of O_DIRECT and the page cache: on a disk, with a filesystem that supports
// O_DIRECT. Empty if there is none.
inline std::optional<std::filesystem::path> disk_folder() {
  for (const std::filesystem::path& parent :
       {std::filesystem::temp_directory_path(), std::filesystem::path("/var/tmp"),
        std::filesystem::current_path()}) {
    try {
      const TempFolder probe(parent);
      if (is_in_memory_filesystem(probe.root())) continue;
      const int fd = ::open(probe.write("probe", "x").c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
      if (fd < 0) continue;
      ::close(fd);
      return parent;
    } catch (const std::exception&) {
    }
  }
  return std::nullopt;
}

}  // namespace evenkeel
