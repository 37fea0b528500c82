// Token files and their companions: for any existing files and any given paths, a pair stays in the
// folder of a given path.
#include <filesystem>

#include "format/token_paths.h"
#include "fuzz/target.h"
#include "tests/temp_folder.h"

namespace evenkeel::fuzz {
namespace {

constexpr const char* kNames[] = {"a.bin",         "a.idx",     "a.ds",  "a.ds.index",
                                  "a.ds.metadata", "a.ds.loss", "a",     ".idx",
                                  ".ds.index",     "..bin",     "...idx"};

FUZZ_TARGET(paths) {
  static const TempFolder folder;
  for (const char* name : kNames) {
    const std::string path = folder.path(name);
    const std::uint64_t way = input.upto(3);
    ::unlink(path.c_str());
    if (way == 1) folder.write(name, "x");
    if (way == 2) static_cast<void>(!::symlink("/nowhere/at.all", path.c_str()));
  }
  std::vector<std::string> named;
  for (std::uint64_t count = input.upto(6); count > 0; --count) {
    if (input.flag()) {
      named.push_back(folder.path(kNames[input.upto(std::size(kNames) - 1)]));
    } else {
      named.push_back(folder.root() + "/" + std::string(input.text(20)));
    }
  }
  const auto folder_of = [](const std::string& path) {
    return path.substr(0, path.rfind('/') + 1);
  };
  for (const TokenFile& file : pair_token_files(named)) {
    const auto beside = [&](const std::string& path) {
      return folder_of(path) == folder_of(file.path);
    };
    MUST(std::ranges::any_of(named, beside));
    MUST(file.index_path.empty() == (file.kind == TokenFile::Index::kNone));
    if (!file.index_path.empty()) MUST(folder_of(file.index_path) == folder_of(file.path));
  }
}

}  // namespace
}  // namespace evenkeel::fuzz
