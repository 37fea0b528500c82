// The preloaded library in a program: what it tells of, and what it does when it is ordered to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>

#include "tests/preload/guarded_program.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

using std::chrono::seconds;

constexpr std::uint64_t kMib = 1 << 20;
constexpr std::uint64_t kLength = 8 * kMib;

class Preload : public ::testing::Test {
 protected:
  // Word i of the file is i.
  std::string numbers(const std::string& name, std::uint64_t bytes = kLength) {
    std::string text(bytes, 0);
    for (std::uint64_t i = 0; i < bytes / 8; ++i) std::memcpy(text.data() + i * 8, &i, 8);
    return folder.write_through(name, text);
  }
  // All of one process, by address.
  std::vector<BoardMapping> of(std::uint64_t pid) {
    std::vector<BoardMapping> found;
    for (const BoardMapping& mapping : keeper.mappings()) {
      if (static_cast<std::uint64_t>(mapping.pid) == pid) found.push_back(mapping);
    }
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    return found;
  }
  std::vector<BoardMapping> told() { return of(static_cast<std::uint64_t>(program.pid())); }
  BoardKeeper::Answer let_go(const BoardMapping& mapping) {
    return keeper.let_go(mapping, mapping.begin, mapping.end, seconds(20));
  }

  TempFolder folder;
  BoardKeeper keeper{{.least_bytes = kMib}};
  GuardedProgram program{keeper.variable()};
};

TEST_F(Preload, TellsOfAFile) {
  const std::string path = numbers("a");
  const std::uint64_t at = program.map(path, kLength - 5 * 4096, PROT_READ, MAP_SHARED, 4096);
  const auto found = told();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].begin, at);
  EXPECT_EQ(found[0].end, at + kLength - 5 * 4096);
  EXPECT_EQ(found[0].offset, 4096u);
  EXPECT_TRUE(found[0].shared);
  EXPECT_FALSE(found[0].writable);
  EXPECT_FALSE(found[0].advised);
  const BoardFile file = keeper.file(found[0].file);
  struct stat status;
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(file.path, path);
  EXPECT_EQ(file.device, status.st_dev);
  EXPECT_EQ(file.inode, status.st_ino);
}

TEST_F(Preload, LetsGo) {
  const std::uint64_t at = program.map(numbers("a"), kLength);
  EXPECT_EQ(program.ask("check", at, kLength, 0), 0u);
  EXPECT_EQ(program.ask("resident", at, kLength), kLength / 4096);
  const auto answer = let_go(told().at(0));
  EXPECT_EQ(answer.error, 0);
  EXPECT_TRUE(answer.dropped);
  EXPECT_EQ(program.ask("resident", at, kLength), 0u);
  EXPECT_EQ(program.ask("check", at, kLength, 0), 0u);
}

}  // namespace
}  // namespace evenkeel
