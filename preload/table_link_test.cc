#include "preload/table_link.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <string>

namespace evenkeel::preload {
namespace {

// Has an empty table, as the tool creates it.
class PreloadFiles : public ::testing::Test {
 protected:
  PreloadFiles() {
    void* at = ::mmap(nullptr, sizeof(shared_table::SharedTable), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error("mmap");
    table = static_cast<shared_table::SharedTable*>(at);
  }
  ~PreloadFiles() override { ::munmap(table, sizeof(shared_table::SharedTable)); }

  FileEntry add(std::uint64_t inode, const std::string& path) {
    return register_file(*table, {1, inode, 3, true}, path.data(), path.size());
  }
  // Retires the entry as the tool does when no process maps the file.
  void retire(const FileEntry& entry) {
    table->files[entry.index].generation.fetch_add(1);
    table->files[entry.index].state = shared_table::kFree;
  }
  std::string path_of(const FileEntry& entry) const {
    const shared_table::File& file = table->files[entry.index];
    const char* at = file.path_length > shared_table::kShortPath
                         ? table->long_paths + file.long_path
                         : file.path;
    return {at, file.path_length};
  }

  shared_table::SharedTable* table = nullptr;
};

TEST_F(PreloadFiles, PathsAreKept) {
  const std::string brief = "/data/file", lengthy = "/" + std::string(3000, 'x');
  const FileEntry first = add(1, brief), second = add(2, lengthy);
  ASSERT_TRUE(first.valid() && second.valid());
  EXPECT_EQ(path_of(first), brief);
  EXPECT_EQ(path_of(second), lengthy);
  EXPECT_EQ(add(2, lengthy).index, second.index) << "the same file";
}

// The tool opens the file by its path, and the old one leads nowhere.
TEST_F(PreloadFiles, ARenamedFileHasAnEntryWithItsNewName) {
  const std::string lengthy = "/" + std::string(3000, 'x');
  for (const std::string& before : {std::string("/data/a.tmp"), lengthy}) {
    const FileEntry first = add(before.size(), before);
    for (const std::string& now : {"z" + before.substr(1), before + "y", std::string("/b")}) {
      const FileEntry second = add(before.size(), now);
      ASSERT_TRUE(second.valid());
      EXPECT_NE(second.index, first.index) << now;
      EXPECT_EQ(path_of(second), now);
      EXPECT_EQ(add(before.size(), now).index, second.index) << "known by now";
    }
    EXPECT_EQ(path_of(first), before);
    EXPECT_EQ(add(before.size(), before).index, first.index) << "renamed back";
  }
}

TEST_F(PreloadFiles, AFileWithMoreNamesThanHaveRoomIsKnownByAnEarlierOne) {
  const auto name = [](std::uint32_t i) { return "/name/" + std::to_string(i); };
  for (std::uint32_t i = 0; i < shared_table::kFileProbes; ++i) {
    ASSERT_EQ(path_of(add(7, name(i))), name(i));
  }
  EXPECT_EQ(path_of(add(7, "/another")), name(shared_table::kFileProbes - 1));
  EXPECT_EQ(path_of(add(7, name(3))), name(3));
  table->long_paths_used = shared_table::kLongPathBytes - 1000;
  ASSERT_TRUE(add(8, "/short").valid());
  EXPECT_EQ(path_of(add(8, std::string(4000, 'a'))), "/short");
  EXPECT_EQ(table->lost_files, 0u);
  EXPECT_EQ(table->lost_paths, 0u);
}

// An entry of which another program writes nonsense.
TEST_F(PreloadFiles, AnInvalidPathIsNotRead) {
  const std::string lengthy(300, 'a');
  const FileEntry first = add(7, lengthy);
  ASSERT_TRUE(first.valid());
  table->files[first.index].long_path = UINT32_MAX - 5;
  const FileEntry second = add(7, lengthy);
  EXPECT_NE(second.index, first.index);
  EXPECT_EQ(path_of(second), lengthy);
}

TEST_F(PreloadFiles, TheRoomOfARetiredEntryIsUsedAgain) {
  // One entry gets paths that are long, short, and long again.
  const std::uint64_t inode = 7;
  const FileEntry first = add(inode, std::string(4000, 'a'));
  ASSERT_TRUE(first.valid());
  const std::uint64_t used = table->long_paths_used;
  for (std::size_t i = 0; i < 10000; ++i) {
    const std::string path(i % 3 == 0 ? 100 : 3000 + i % 1000, static_cast<char>('a' + i % 26));
    retire(first);
    const FileEntry next = add(inode, path);
    ASSERT_EQ(next.index, first.index) << i;
    ASSERT_EQ(path_of(next), path);
  }
  EXPECT_EQ(table->long_paths_used, used);
  EXPECT_EQ(table->lost_paths, 0u);
}

TEST_F(PreloadFiles, PathsWithoutRoomAreCountedSeparately) {
  table->long_paths_used = shared_table::kLongPathBytes - 1000;
  EXPECT_FALSE(add(1, std::string(4000, 'a')).valid());
  EXPECT_EQ(table->lost_paths, 1u);
  EXPECT_EQ(table->lost_files, 0u);
  EXPECT_TRUE(add(1, "/data/file").valid()) << "a short path has room";
}

// Other programs can write anything to the table, but nothing outside it may be accessed.
TEST_F(PreloadFiles, InvalidRoomIsNotUsedAgain) {
  const FileEntry first = add(7, std::string(300, 'a'));
  ASSERT_TRUE(first.valid());
  table->files[first.index].long_path = UINT32_MAX - 5;
  table->files[first.index].long_path_bytes = UINT32_MAX;
  retire(first);
  const FileEntry next = add(7, std::string(400, 'b'));
  ASSERT_TRUE(next.valid());
  EXPECT_EQ(path_of(next), std::string(400, 'b'));
}

// Programs that were killed while filling entries leave them in that state.
TEST_F(PreloadFiles, ManyEntriesThatAreNeverFilledDelayLittle) {
  const FileEntry first = add(7, "/data/file");
  ASSERT_TRUE(first.valid());
  constexpr std::uint32_t kStuck = shared_table::kFileProbes - 1;
  for (std::uint32_t i = 0; i < kStuck; ++i) {
    table->files[(first.index + i) % shared_table::kFiles].state = shared_table::kFilling;
  }
  const auto begin = std::chrono::steady_clock::now();
  const FileEntry next = add(7, "/data/file");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_EQ(next.index, (first.index + kStuck) % shared_table::kFiles);
}

}  // namespace
}  // namespace evenkeel::preload
