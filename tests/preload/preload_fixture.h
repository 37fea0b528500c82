// For tests of the preloaded library: a folder with a file, and a shared table.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "tests/preload/guarded_program.h"
#include "tests/temp_folder.h"

namespace evenkeel {

inline constexpr std::uint64_t kMib = 1 << 20;
inline constexpr std::uint64_t kLength = 8 * kMib;

class PreloadTest : public ::testing::Test {
 protected:
  // Word i of the file is i.
  std::string numbers(const std::string& name, std::uint64_t bytes = kLength) {
    std::string text(bytes, 0);
    for (std::uint64_t i = 0; i < bytes / 8; ++i) std::memcpy(text.data() + i * 8, &i, 8);
    return folder.write_through(name, text);
  }
  static std::string text_of(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Waits up to 20 seconds until `happened` returns true. Returns whether it did.
  static bool soon(const std::function<bool()>& happened) {
    for (int i = 0; i < 2000 && !happened(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return happened();
  }
  // All mappings of one process, sorted by address.
  std::vector<TableEntry> of(std::uint64_t pid) {
    std::vector<TableEntry> found;
    for (const TableEntry& mapping : owner.mappings()) {
      if (static_cast<std::uint64_t>(mapping.pid) == pid) found.push_back(mapping);
    }
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    return found;
  }
  std::vector<TableEntry> of(const GuardedProgram& program) {
    return of(static_cast<std::uint64_t>(program.pid()));
  }
  SharedTableOwner::Answer let_go(const TableEntry& mapping) {
    return owner.release(mapping, mapping.begin, mapping.end, std::chrono::seconds(20));
  }

  TempFolder folder;
  SharedTableOwner owner{{.least_bytes = kMib}};
};

}  // namespace evenkeel
