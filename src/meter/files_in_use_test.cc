#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/fd.h"
#include "evenkeel/bytes.h"
#include "evenkeel/meter.h"
#include "tests/forked.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Makes files in a temporary folder and returns which of them files_in_use finds.
class FilesInUse : public ::testing::Test {
 protected:
  static constexpr std::size_t kSize = 64_KiB;

  std::string make(const std::string& name, std::size_t size = kSize) const {
    return folder_.write(name, std::string(size, 'x'));
  }
  void map(const std::string& path, int protection = PROT_READ) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    void* at = ::mmap(nullptr, kSize, protection, MAP_PRIVATE, fd.get(), 0);
    ASSERT_NE(at, MAP_FAILED) << path;
    maps_.push_back(at);
  }
  void open(const std::string& path, int flags = O_RDONLY) {
    files_.emplace_back(::open(path.c_str(), flags | O_CLOEXEC));
    ASSERT_TRUE(files_.back()) << path;
  }
  std::vector<std::string> found(std::uint64_t least_size = kSize) const {
    std::vector<std::string> names;
    for (const FileInUse& file : files_in_use(0, least_size)) {
      if (file.path.starts_with(folder_.root())) {
        names.push_back(file.path.substr(folder_.root().size() + 1));
      }
    }
    return names;
  }
  ~FilesInUse() override {
    for (void* map : maps_) ::munmap(map, kSize);
  }

  // Its real path, which is what the kernel shows.
  const TempFolder folder_{std::filesystem::canonical(std::filesystem::temp_directory_path())};
  std::vector<void*> maps_;
  std::vector<Fd> files_;
};

TEST_F(FilesInUse, MappedAndOpenFilesAreFoundOnce) {
  const std::string both = make("both");
  map(both);
  map(both, PROT_READ | PROT_WRITE);
  open(both);
  map(make("mapped"));
  open(make("open"));
  open(make("open for both"), O_RDWR);
  make("idle");
  EXPECT_THAT(found(), UnorderedElementsAre("both", "mapped", "open", "open for both"));
}

TEST_F(FilesInUse, HaveSizeAndIdentity) {
  const std::string path = make("data", kSize + 5);
  map(path);
  struct stat status;
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  const auto files = files_in_use(::getpid(), kSize);
  const auto file =
      std::find_if(files.begin(), files.end(), [&](const auto& one) { return one.path == path; });
  ASSERT_NE(file, files.end());
  EXPECT_EQ(file->size, kSize + 5);
  EXPECT_EQ(file->device, status.st_dev);
  EXPECT_EQ(file->inode, status.st_ino);
}

TEST_F(FilesInUse, SmallAndWriteOnlyFilesAreLeftOut) {
  open(make("small", kSize - 1));
  open(make("log"), O_WRONLY | O_APPEND);
  EXPECT_THAT(found(), IsEmpty());
  EXPECT_THAT(found(1), UnorderedElementsAre("small"));
}

TEST_F(FilesInUse, ProgramsAndLibrariesAreLeftOut) {
  const std::string library = make("library.so");
  map(library);
  map(library, PROT_READ | PROT_EXEC);
  EXPECT_THAT(found(), IsEmpty());
  for (const FileInUse& file : files_in_use(0, 0)) {
    EXPECT_EQ(file.path.find("libc.so"), std::string::npos) << file.path;
  }
}

TEST_F(FilesInUse, OddNamesAreFound) {
  for (const char* name : {"with blank ", "new\nline", "real\\012", "kept (deleted)"}) {
    map(make(std::string("mapped ") + name));
    open(make(std::string("open ") + name));
  }
  EXPECT_THAT(found(),
              UnorderedElementsAre("mapped with blank ", "open with blank ", "mapped new\nline",
                                   "open new\nline", "mapped real\\012", "open real\\012",
                                   "mapped kept (deleted)", "open kept (deleted)"));
}

TEST_F(FilesInUse, DeletedAndReplacedFilesAreLeftOut) {
  for (const char* name : {"deleted", "replaced"}) {
    const std::string path = make(name);
    map(path);
    open(path);
    std::filesystem::remove(path);
  }
  make("deleted (deleted)");  // the name that the kernel shows for the deleted file
  make("replaced");
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(FilesInUse, MemoryAndDevicesAreLeftOut) {
  const Fd memory(::memfd_create("evenkeel-test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(memory.get(), kSize), 0);
  open("/dev/zero");
  open("/proc/self/status");
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  for (const FileInUse& file : files_in_use(0, 0)) {
    EXPECT_EQ(file.path.find("memfd"), std::string::npos) << file.path;
    EXPECT_FALSE(file.path.starts_with("/dev/") || file.path.starts_with("/proc/")) << file.path;
    EXPECT_TRUE(std::filesystem::is_regular_file(file.path)) << file.path;
  }
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(FilesInUse, UnprivilegedUsersSeeTheirOwnFiles) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  std::filesystem::permissions(folder_.root(), std::filesystem::perms(0777));
  const std::string blank = make("with blank "), line = make("new\nline"), real = make("r\\012");
  const std::string gone = make("gone");
  const std::string said = in_child([&]() -> std::string {
    if (!become_nobody()) return "still root";
    ::prctl(PR_SET_DUMPABLE, 1);  // otherwise it may not read its own /proc after setuid
    for (const std::string& path : {blank, line, real, gone}) map(path);
    ::unlink(gone.c_str());
    make("gone (deleted)");
    std::string all;
    auto names = found();
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) all += name + "|";
    return all;
  });
  EXPECT_EQ(said, "new\nline|r\\012|with blank |");
}

TEST(FilesInUseOf, AProcessThatDoesNotExistAreNone) {
  EXPECT_THAT(files_in_use(0x3ffffff0, 0), IsEmpty());
}

}  // namespace
}  // namespace evenkeel
