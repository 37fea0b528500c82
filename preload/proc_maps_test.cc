#include "preload/proc_maps.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/temp_folder.h"

namespace evenkeel::preload {
namespace {

constexpr std::uint64_t kPage = 4096, kLength = 16 * kPage;

// Parameters: whether the file is kept open, and whether it is read as text.
class PreloadProcMaps : public ::testing::TestWithParam<std::pair<bool, bool>> {
 protected:
  PreloadProcMaps() : maps(GetParam().first), file(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    if (GetParam().second) maps.use_text();
    struct stat status;
    ::fstat(file.get(), &status);
    inode = status.st_ino;
  }
  ~PreloadProcMaps() override { ::munmap(at, kLength); }
  void map(int protection, int flags, std::uint64_t offset = 0) {
    at = ::mmap(nullptr, kLength, protection, flags, file.get(), static_cast<off_t>(offset));
    entry.begin = begin();
    entry.end = begin() + kLength;
    entry.offset = offset;
    entry.inode = inode;
    entry.flags = flags == MAP_SHARED ? shared_table::kShared : 0U;
  }
  std::uint64_t begin() const { return reinterpret_cast<std::uint64_t>(at); }
  ProcMaps::Finding look() { return maps.look({entry.begin, entry.end}, entry); }

  TempFolder folder;
  const std::string path = folder.write("file", std::string(64 * kPage, 'x'));
  ProcMaps maps;
  Fd file;
  void* at = MAP_FAILED;
  std::uint64_t inode = 0;
  Entry entry;
};

TEST_P(PreloadProcMaps, TheMappingOfAnEntryIsRecognised) {
  map(PROT_READ, MAP_SHARED, 3 * kPage);
  const ProcMaps::Finding found = look();
  EXPECT_TRUE(found.readable);
  EXPECT_TRUE(found.same);
  EXPECT_FALSE(found.writable);
  EXPECT_NE(found.device, 0u);
  entry.device = found.device;
  EXPECT_TRUE(look().same) << "again";
  EXPECT_TRUE(maps.look({begin() + kPage, begin() + 2 * kPage}, entry).same) << "a part";
  entry.device = found.device + 1;
  EXPECT_FALSE(look().same);
}

TEST_P(PreloadProcMaps, OtherMappingsAreNotTakenForIt) {
  map(PROT_READ, MAP_PRIVATE, 3 * kPage);
  ASSERT_TRUE(look().same);
  const Entry right = entry;
  entry.offset = 2 * kPage;
  EXPECT_FALSE(look().same);
  entry = right;
  entry.inode += 1;
  EXPECT_FALSE(look().same);
  entry = right;
  entry.flags = shared_table::kShared;
  EXPECT_FALSE(look().same);
  entry = right;
  ASSERT_TRUE(look().same);
  ::munmap(static_cast<char*>(at) + 4 * kPage, kPage);
  EXPECT_TRUE(look().readable);
  EXPECT_FALSE(look().same) << "a hole";
  EXPECT_TRUE(maps.look({begin(), begin() + 4 * kPage}, entry).same) << "before it";
  EXPECT_TRUE(maps.look({begin() + 5 * kPage, entry.end}, entry).same) << "after it";
}

TEST_P(PreloadProcMaps, AnonymousMemoryIsNoFile) {
  at = ::mmap(nullptr, kLength, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  entry.begin = begin();
  entry.end = begin() + kLength;
  EXPECT_TRUE(look().readable);
  EXPECT_FALSE(look().same);
}

TEST_P(PreloadProcMaps, ASplitMappingIsRecognised) {
  map(PROT_READ, MAP_PRIVATE);
  ::mprotect(static_cast<char*>(at) + 4 * kPage, kPage, PROT_READ | PROT_WRITE);
  const ProcMaps::Finding found = look();
  EXPECT_TRUE(found.same);
  EXPECT_TRUE(found.writable);
  EXPECT_FALSE(maps.look({begin(), begin() + 4 * kPage}, entry).writable);
}

INSTANTIATE_TEST_SUITE_P(Ways, PreloadProcMaps,
                         ::testing::Values(std::pair(false, false), std::pair(true, false),
                                           std::pair(false, true), std::pair(true, true)));

}  // namespace
}  // namespace evenkeel::preload
