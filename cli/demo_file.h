// A file of random-looking float32 rows for `demo`, on a real disk if there is one with room.
#pragma once

#include <cstdint>
#include <string>

namespace evenkeel::cli {

inline constexpr std::uint64_t kDemoColumns = 162;

// The folder to write in: `wanted` if given, else the first of $TMPDIR, /var/tmp, the current
// folder and /tmp that is on a disk, may be written and has room; else one in memory. Throws Error
// that says what each lacks.
std::string demo_folder(const std::string& wanted, std::uint64_t bytes);
bool lies_in_memory(const std::string& folder);  // tmpfs and the like

// Written and synced when made, with a bar on stderr; removed when this goes, unless kept.
class DemoFile {
 public:
  DemoFile(const std::string& folder, std::uint64_t rows);  // throws Error, Interrupted
  ~DemoFile();
  DemoFile(const DemoFile&) = delete;
  const std::string& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  void write(int fd, std::uint64_t rows);

  std::string path_;
  bool kept_ = false;
};

}  // namespace evenkeel::cli
