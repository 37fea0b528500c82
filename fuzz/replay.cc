// Runs files through targets without libFuzzer, so that the corpora are tests with any compiler.
// usage: fuzz_replay TARGET FILE-OR-FOLDER...
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "fuzz/target.h"

namespace evenkeel::fuzz {
namespace {

std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> all;
  return all;
}

std::vector<std::string> files_of(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path.string()};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    files.push_back(entry.path().string());
  }
  return files;
}

// The buffer has exactly the file's size, so that sanitizers see any access beyond it.
std::vector<std::uint8_t> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

int replay(const std::string& name, const std::vector<std::string>& paths) {
  const auto target = targets().find(name);
  if (target == targets().end()) {
    std::fprintf(stderr, "fuzz_replay: unknown target %s\n", name.c_str());
    return 2;
  }
  std::size_t count = 0;
  for (const std::string& path : paths) {
    for (const std::string& file : files_of(path)) {
      std::vector<std::uint8_t> bytes = bytes_of(file);
      bytes.shrink_to_fit();
      std::fprintf(stderr, "%s\n", file.c_str());  // the last line names the input that failed
      target->second({bytes.data(), bytes.size()});
      ++count;
    }
  }
  std::printf("%s: %zu files\n", name.c_str(), count);
  return count > 0 ? 0 : 1;  // a missing corpus is a failure
}

}  // namespace

bool add_target(const char* name, Target target) { return targets().emplace(name, target).second; }

}  // namespace evenkeel::fuzz

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: fuzz_replay TARGET FILE-OR-FOLDER...\n");
    return 2;
  }
  try {
    return evenkeel::fuzz::replay(argv[1], {argv + 2, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_replay: %s\n", error.what());
    return 1;
  }
}
