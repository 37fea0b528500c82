// For tests: a memory cgroup, version 1 or 2, that is removed at the end of its scope.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace evenkeel {

class CgroupScope {
 public:
  explicit CgroupScope(std::uint64_t limit) {
    namespace fs = std::filesystem;
    const std::string name = "evenkeel-test-" + std::to_string(::getpid());
    const fs::path v1 = "/sys/fs/cgroup/memory", v2 = "/sys/fs/cgroup";
    is_v1_ = fs::exists(v1 / "memory.limit_in_bytes");
    folder_ = (is_v1_ ? v1 : v2) / name;
    std::error_code failed;
    if (!fs::create_directory(folder_, failed) ||
        !put(is_v1_ ? "memory.limit_in_bytes" : "memory.max", std::to_string(limit))) {
      why_not_ = "no memory cgroup can be made at " + folder_.string() + ": needs root, and the " +
                 "memory controller";
    }
  }
  ~CgroupScope() { ::rmdir(folder_.c_str()); }
  CgroupScope(const CgroupScope&) = delete;
  CgroupScope& operator=(const CgroupScope&) = delete;

  const std::string& why_not() const { return why_not_; }  // empty if it was created
  bool add(pid_t process) const { return put("cgroup.procs", std::to_string(process)); }

  std::uint64_t oom_kills() const {
    return number_after(is_v1_ ? "memory.oom_control" : "memory.events", "oom_kill ");
  }
  // How often the limit was reached, so that the kernel had to reclaim pages.
  std::uint64_t limit_hits() const {
    return is_v1_ ? number_after("memory.failcnt", "") : number_after("memory.events", "max ");
  }
  std::uint64_t peak() const {
    return number_after(is_v1_ ? "memory.max_usage_in_bytes" : "memory.peak", "");
  }

 private:
  bool put(const char* file, const std::string& text) const {
    std::ofstream out(folder_ / file);
    out << text << std::flush;
    return out.good();
  }
  std::uint64_t number_after(const char* file, const std::string& word) const {
    std::ifstream in(folder_ / file);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with(word)) return std::stoull(line.substr(word.size()));
    }
    return 0;
  }

  std::filesystem::path folder_;
  bool is_v1_ = false;
  std::string why_not_;
};

}  // namespace evenkeel
