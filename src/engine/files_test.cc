#include "engine/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "evenkeel/error.h"
#include "format/part.h"
#include "tests/forked.h"
#include "tests/sanitizers.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

class FilesTest : public testing::Test {
 protected:
  std::string name(int i) const { return folder_.path("part" + std::to_string(i)); }
  // Files "0000000000", "1111111111", ...
  Layout parts(int count) const {
    std::vector<std::string> paths;
    for (int i = 0; i < count; ++i) {
      paths.push_back(folder_.write("part" + std::to_string(i), letters(i)));
    }
    Layout layout = kept_parts(paths);
    for (Segment& segment : layout.segments) segment.kept.reset();  // opened by name only
    return layout;
  }
  static Layout kept_parts(const std::vector<std::string>& paths) {
    return read_layout(paths, {.dtype = DType::of<std::uint8_t>()});
  }
  static std::string letters(int i) { return std::string(10, static_cast<char>('0' + i % 10)); }

  static std::string read(FileSet& files, std::uint32_t file) {
    const Pin pin(files, file);
    std::string out(10, ' ');
    const auto got = ::pread(pin.fd(), out.data(), out.size(), 0);
    out.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return out;
  }
  static Error refusal(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorKind::kClosed, "nothing", "it was accepted");
  }
  static Error refusal_of_pin(FileSet& files, std::uint32_t file) {
    return refusal([&] { const Pin pin(files, file); });
  }
  static Error refusal_of_verify(FileSet& files) {
    return refusal([&] { files.verify_used(); });
  }
  static std::size_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
  // Another file under the same name, as `mv` leaves it.
  void replace(int i, std::string_view bytes) const {
    std::filesystem::rename(folder_.write("new", bytes), name(i));
  }
  void append(int i) const { std::ofstream(name(i), std::ios::app) << "more"; }
  void touch(int i) const {
    const timespec times[2] = {{0, UTIME_OMIT}, {1'000'000'000, 5}};
    ASSERT_EQ(::utimensat(AT_FDCWD, name(i).c_str(), times, 0), 0);
  }

  TempFolder folder_;
};

TEST_F(FilesTest, OpensWhatIsPinnedAndNothingElse) {
  const Layout layout = parts(5);
  FileSet files(layout, 0);
  const std::size_t before = open_descriptors();
  EXPECT_EQ(read(files, 3), letters(3));
  EXPECT_EQ(open_descriptors(), before + 1);
  EXPECT_EQ(read(files, 3), letters(3));
  EXPECT_EQ(open_descriptors(), before + 1);
}

TEST_F(FilesTest, AMissingFileHurtsOnlyThoseWhoWantIt) {
  const Layout layout = parts(3);
  FileSet files(layout, 0);
  std::filesystem::remove(name(1));
  EXPECT_EQ(read(files, 0), letters(0));
  EXPECT_EQ(refusal_of_pin(files, 1).code(), ENOENT);
  EXPECT_EQ(read(files, 2), letters(2));
}

TEST_F(FilesTest, ADeletedFileIsReadToTheEndWhileItIsOpen) {
  const Layout layout = parts(1);
  FileSet files(layout, 0);
  EXPECT_EQ(read(files, 0), letters(0));
  std::filesystem::remove(name(0));
  EXPECT_EQ(read(files, 0), letters(0));
  EXPECT_NO_THROW(files.verify_used());
}

TEST_F(FilesTest, KeepsABoundedNumberOpen) {
  const Layout layout = parts(60);
  const std::string said = in_child([&] {
    const rlimit low{32, 32};
    if (::setrlimit(RLIMIT_NOFILE, &low) != 0) return std::string("no limit");
    FileSet files(layout, 0);
    const std::size_t before = open_descriptors();
    for (int round = 0; round < 2; ++round) {
      for (std::uint32_t i = 0; i < 60; ++i) {
        if (read(files, i) != letters(static_cast<int>(i))) return "wrong " + std::to_string(i);
      }
    }
    files.verify_used();
    return open_descriptors() - before <= 8 ? std::string("bounded") : "too many are open";
  });
  EXPECT_EQ(said, "bounded");
}

TEST_F(FilesTest, MakesRoomWhenTheProcessHasNoDescriptorLeft) {
  if (kUnderAsan) GTEST_SKIP() << "UBSan together with ASan needs descriptors for a pipe";
  const Layout layout = parts(10);
  const std::string said = in_child([&] {
    const rlimit low{40, 40};
    if (::setrlimit(RLIMIT_NOFILE, &low) != 0) return std::string("no limit");
    FileSet files(layout, 0);
    read(files, 0);
    std::vector<Fd> others;
    while (true) {
      Fd one(::open("/dev/null", O_RDONLY));
      if (!one) break;
      others.push_back(std::move(one));
    }
    return read(files, 1) + read(files, 2);
  });
  EXPECT_EQ(said, letters(1) + letters(2));
}

TEST_F(FilesTest, APinnedFileIsNotClosedForAnother) {
  const Layout layout = parts(30);
  const std::string said = in_child([&] {
    const rlimit low{64, 64};
    if (::setrlimit(RLIMIT_NOFILE, &low) != 0) return std::string("no limit");
    FileSet files(layout, 0);
    const int fd = files.pin(0);
    for (std::uint32_t i = 1; i < 30; ++i) read(files, i);
    std::string out(10, ' ');
    if (::pread(fd, out.data(), 10, 0) != 10) return std::string("closed");
    files.unpin(0);
    return out;
  });
  EXPECT_EQ(said, letters(0));
}

TEST_F(FilesTest, RefusesAReplacedFileEveryTime) {
  const Layout layout = parts(2);
  FileSet files(layout, 0);
  replace(1, letters(1));
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Error error = refusal_of_pin(files, 1);
    EXPECT_EQ(error.kind(), ErrorKind::kFormat) << "attempt " << attempt;
    EXPECT_EQ(error.path(), name(1));
    EXPECT_THAT(error.what(), HasSubstr("another file has taken this name"));
  }
}

// Its ctime has changed, so it may have been written to.
TEST_F(FilesTest, AFileThatWasMovedAwayAndBackIsRefused) {
  const Layout layout = parts(1);
  FileSet files(layout, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // times move in ticks of a clock
  std::filesystem::rename(name(0), folder_.path("aside"));
  folder_.write("part0", "other");
  EXPECT_THAT(refusal_of_pin(files, 0).what(), HasSubstr("another file has taken this name"));
  std::filesystem::rename(folder_.path("aside"), name(0));
  EXPECT_THAT(refusal_of_pin(files, 0).what(), HasSubstr("ctime"));
}

TEST_F(FilesTest, ARefusedFileTakesNoDescriptor) {
  const Layout layout = parts(1);
  FileSet files(layout, 0);
  replace(0, "other");
  const std::size_t before = open_descriptors();
  refusal_of_pin(files, 0);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(FilesTest, VerifyNoticesTruncationGrowthAndWriting) {
  const Layout layout = parts(3);
  FileSet files(layout, 0);
  for (std::uint32_t i = 0; i < 3; ++i) read(files, i);
  files.verify_used();

  std::filesystem::resize_file(name(0), 4);
  read(files, 0);
  const Error truncated = refusal_of_verify(files);
  EXPECT_EQ(truncated.kind(), ErrorKind::kFormat);
  EXPECT_EQ(truncated.path(), name(0));
  EXPECT_EQ(truncated.offset(), 4u);
  EXPECT_THAT(truncated.what(), HasSubstr("it had 10 bytes, now it has 4"));

  append(1);
  read(files, 1);
  const Error grown = refusal_of_verify(files);
  EXPECT_EQ(grown.path(), name(1));
  EXPECT_THAT(grown.what(), HasSubstr("it had 10 bytes, now it has 14"));

  touch(2);
  read(files, 2);
  const Error written = refusal_of_verify(files);
  EXPECT_EQ(written.path(), name(2));
  EXPECT_THAT(written.what(), HasSubstr("was written to while open"));
}

TEST_F(FilesTest, VerifyAsksOnlyAboutFilesUsedSinceTheLastTime) {
  const Layout layout = parts(2);
  FileSet files(layout, 0);
  read(files, 0);
  read(files, 1);
  files.verify_used();
  touch(0);
  read(files, 1);
  EXPECT_NO_THROW(files.verify_used());
  read(files, 0);
  EXPECT_EQ(refusal_of_verify(files).path(), name(0));
  EXPECT_NO_THROW(files.verify_used());  // reported only once
}

TEST_F(FilesTest, VerifyKnowsOfFilesThatWereClosedInBetween) {
  const Layout layout = parts(30);
  const std::string said = in_child([&] {
    const rlimit low{40, 40};
    if (::setrlimit(RLIMIT_NOFILE, &low) != 0) return std::string("no limit");
    FileSet files(layout, 0);
    read(files, 0);
    append(0);
    for (std::uint32_t i = 1; i < 30; ++i) read(files, i);  // file 0 has been closed by now
    return refusal_of_verify(files).path();
  });
  EXPECT_EQ(said, name(0));
}

// A batch is handed on before the run ends, so its files are verified one by one.
TEST_F(FilesTest, VerifyOfOneFileKnowsThatItWasClosedInBetween) {
  const Layout layout = parts(30);
  const std::string said = in_child([&] {
    const rlimit low{40, 40};
    if (::setrlimit(RLIMIT_NOFILE, &low) != 0) return std::string("no limit");
    FileSet files(layout, 0);
    read(files, 0);
    append(0);
    for (std::uint32_t i = 1; i < 30; ++i) read(files, i);  // files 0 and 1 have been closed by now
    files.verify(1);
    const std::string changed = refusal([&] { files.verify(0); }).path();
    files.forget_used();
    files.verify(0);
    return changed;
  });
  EXPECT_EQ(said, name(0));
}

TEST_F(FilesTest, LeavesTheAccessTimeAlone) {
  folder_.write("part0", letters(0));
  const timespec times[2] = {{1'000'000'000, 0}, {0, UTIME_OMIT}};
  ASSERT_EQ(::utimensat(AT_FDCWD, name(0).c_str(), times, 0), 0);
  const Layout layout = kept_parts({name(0)});
  struct stat before, after;
  ASSERT_EQ(::stat(name(0).c_str(), &before), 0);
  FileSet files(layout, 0);
  read(files, 0);
  ASSERT_EQ(::stat(name(0).c_str(), &after), 0);
  EXPECT_EQ(after.st_atim.tv_sec, before.st_atim.tv_sec);
  EXPECT_EQ(after.st_atim.tv_nsec, before.st_atim.tv_nsec);
}

TEST_F(FilesTest, AKeptFileIsReadAfterItsNameIsGoneOrAnothers) {
  for (const bool is_replaced : {false, true}) {
    const Layout layout = kept_parts({folder_.write("part0", letters(0))});
    ASSERT_TRUE(layout.segments[0].kept);
    FileSet files(layout, 0);
    is_replaced ? replace(0, letters(1)) : static_cast<void>(std::filesystem::remove(name(0)));
    EXPECT_EQ(read(files, 0), letters(0));
    EXPECT_NO_THROW(files.verify_used());
  }
}

// A child may close descriptors that it does not know. Whatever file gets their number then must
// not be read.
TEST_F(FilesTest, AKeptDescriptorThatSomeoneClosedIsNotTrusted) {
  const Layout layout = kept_parts({folder_.write("part0", letters(0))});
  folder_.write("other", letters(5));
  const std::string said = in_child([&] {
    const Fd other(::open(folder_.path("other").c_str(), O_RDONLY));
    int taken = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      if (std::filesystem::read_symlink(entry.path(), gone) != name(0)) continue;
      if (::dup2(other.get(), std::stoi(entry.path().filename())) >= 0) ++taken;
    }
    if (taken == 0) return std::string("no descriptor was kept");
    FileSet files(layout, 0);
    return read(files, 0);
  });
  EXPECT_EQ(said, letters(0));
}

TEST_F(FilesTest, ManyFilesAreNotKept) {
  std::vector<std::string> paths(kMostKeptFiles, folder_.write("part0", letters(0)));
  for (const Segment& segment : kept_parts(paths).segments) EXPECT_TRUE(segment.kept);
  paths.push_back(paths.front());
  for (const Segment& segment : kept_parts(paths).segments) EXPECT_FALSE(segment.kept);
}

TEST_F(FilesTest, ARewriteWhoseMtimeWasSetBackIsNoticed) {
  for (const bool is_kept : {false, true}) {
    Layout layout = kept_parts({folder_.write("part0", letters(0))});
    if (!is_kept) layout.segments[0].kept.reset();
    FileSet files(layout, 0);
    EXPECT_EQ(read(files, 0), letters(0));
    struct stat before;
    ASSERT_EQ(::stat(name(0).c_str(), &before), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // times move in ticks of a clock
    std::fstream(name(0), std::ios::in | std::ios::out) << letters(1);
    const timespec times[2] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::utimensat(AT_FDCWD, name(0).c_str(), times, 0), 0);
    const Error error = refusal_of_verify(files);
    EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
    EXPECT_EQ(error.path(), name(0));
    EXPECT_THAT(error.what(), HasSubstr("ctime"));
  }
}

TEST_F(FilesTest, LinkingRenamingAndChmodAreNoWrites) {
  const Layout layout = kept_parts({folder_.write("part0", letters(0))});
  FileSet files(layout, 0);
  EXPECT_EQ(read(files, 0), letters(0));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // times move in ticks of a clock
  ASSERT_EQ(::chmod(name(0).c_str(), 0600), 0);
  EXPECT_NO_THROW(files.verify(0));
  ASSERT_EQ(::chmod(name(0).c_str(), 0644), 0);
  ASSERT_EQ(::link(name(0).c_str(), folder_.path("second").c_str()), 0);
  EXPECT_NO_THROW(files.verify(0));
  ASSERT_EQ(::unlink(folder_.path("second").c_str()), 0);
  std::filesystem::rename(name(0), folder_.path("elsewhere"));
  EXPECT_NO_THROW(files.verify(0));
}

TEST_F(FilesTest, ReadsTheFilesOfOthers) {
  const Layout layout = parts(1);
  folder_.open_to_everyone();
  const std::string said = in_child([&] {
    if (::getuid() == 0 && !become_nobody()) return std::string("still root");
    FileSet files(layout, 0);  // only the owner may use O_NOATIME
    return read(files, 0);
  });
  EXPECT_EQ(said, letters(0));
}

TEST_F(FilesTest, ATruncationErrorSaysWhereAndHowLongItWas) {
  const Layout layout = parts(1);
  const Error error = refusal([&] { throw_truncated(layout.segments[0], 7); });
  EXPECT_EQ(error.kind(), ErrorKind::kFormat);
  EXPECT_EQ(error.path(), name(0));
  EXPECT_EQ(error.offset(), 7u);
  EXPECT_THAT(error.what(), HasSubstr("it had 10 bytes when it was opened"));
}

}  // namespace
}  // namespace evenkeel
