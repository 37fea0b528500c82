#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <set>
#include <thread>

#include "base/fd.h"
#include "base/text_file.h"
#include "evenkeel/error.h"
#include "evenkeel/profile.h"
#include "tests/forked.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

namespace fs = std::filesystem;

class WriteReport : public testing::Test {
 protected:
  std::string text(std::string_view name) const {
    return read_text_file(folder_.path(name)).value_or("(missing)");
  }
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder_.root())) {
      all.insert(entry.path().filename());
    }
    return all;
  }
  // "ERRNO hint", or "" if it was written.
  static std::string refusal(const std::string& path, const std::string& report = "new") {
    try {
      write_report(path, report);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kSystem);
      EXPECT_EQ(error.path(), path);
      return std::to_string(error.code()) + (error.hint_text().empty() ? "" : " hint");
    }
    return "";
  }
  static std::string with_hint(int code) { return std::to_string(code) + " hint"; }

  TempFolder folder_;
  const std::string path_ = folder_.path("report.html");
};

TEST_F(WriteReport, WritesANewFileAndLeavesNothingElse) {
  const std::string large(3'000'000, 'x');
  write_report(path_, large);
  EXPECT_EQ(text("report.html"), large);
  EXPECT_EQ(names(), std::set<std::string>{"report.html"});
}

TEST_F(WriteReport, ReplacesAnOldFileCompletely) {
  folder_.write("report.html", "old and longer");
  write_report(path_, "new");
  EXPECT_EQ(text("report.html"), "new");
  EXPECT_EQ(names(), std::set<std::string>{"report.html"});
}

TEST_F(WriteReport, AReaderOfTheOldFileCanReadItToItsEnd) {
  folder_.write("report.html", "old");
  const Fd reader = open_readable(path_);
  write_report(path_, "new");
  std::byte out[10];
  EXPECT_EQ(read_upto(reader.get(), 0, out, path_), 3u);
  EXPECT_EQ(static_cast<char>(out[0]), 'o');
}

TEST_F(WriteReport, TheModeFollowsTheUmask) {
  for (const mode_t mask : {022, 077}) {
    const std::string said = in_child([&] {
      ::umask(mask);
      write_report(path_, "new");
      struct stat status;
      ::stat(path_.c_str(), &status);
      return std::to_string(status.st_mode & 0777);
    });
    EXPECT_EQ(said, std::to_string(0666 & ~mask));
  }
}

TEST_F(WriteReport, ALinkStaysALinkAndItsTargetIsReplaced) {
  folder_.write("deep/target.html", "old");
  fs::create_symlink("deep/target.html", path_);
  write_report(path_, "new");
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_EQ(text("deep/target.html"), "new");
}

TEST_F(WriteReport, GoesIntoTheWorkingFolderWithoutAPath) {
  const std::string said = in_child([&] {
    if (::chdir(folder_.root().c_str()) != 0) return std::string("chdir");
    write_report("report.html", "new");
    return std::string("written");
  });
  EXPECT_EQ(said, "written");
  EXPECT_EQ(text("report.html"), "new");
}

TEST_F(WriteReport, AFailureMidwayLeavesTheOldFileAndNoOther) {
  folder_.write("report.html", "old");
  const std::string said = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    return refusal(path_, std::string(100'000, 'x'));
  });
  EXPECT_EQ(said, with_hint(EFBIG));
  EXPECT_EQ(text("report.html"), "old");
  EXPECT_EQ(names(), std::set<std::string>{"report.html"});
}

// Runs as a user who may write to the device but cannot replace it, in case write_report tries to.
TEST_F(WriteReport, ReportsThatThereIsNoSpace) {
  const std::string said = in_child([&] {
    if (::getuid() == 0 && !become_nobody()) return std::string("still root");
    return refusal("/dev/full");
  });
  EXPECT_EQ(said, with_hint(ENOSPC));
}

TEST_F(WriteReport, ReportsWhatIsWrongWithThePath) {
  folder_.write("file", "x");
  EXPECT_EQ(refusal(folder_.path("missing/report.html")), with_hint(ENOENT));
  EXPECT_EQ(refusal(folder_.path("file/report.html")), with_hint(ENOTDIR));
  EXPECT_EQ(refusal(folder_.root()), with_hint(EISDIR));
  EXPECT_EQ(refusal(""), with_hint(ENOENT));
  EXPECT_EQ(names(), std::set<std::string>{"file"});
}

TEST_F(WriteReport, WritesIntoAPipe) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = text("report.html"); });
  write_report(path_, "new");
  reader.join();
  EXPECT_EQ(read, "new");
  EXPECT_TRUE(fs::is_fifo(path_));
}

TEST_F(WriteReport, ContinuesAtTheCurrentPositionOfStandardOutput) {
  const std::string said = in_child([&] {
    const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(fd, STDOUT_FILENO);
    if (::getuid() == 0 && !become_nobody()) return std::string("still root");  // as above
    const bool before = ::write(STDOUT_FILENO, "before ", 7) == 7;
    write_report("/dev/stdout", "report ");
    write_report("/dev/fd/" + std::to_string(fd), "again ");
    const bool after = ::write(STDOUT_FILENO, "after", 5) == 5;
    return std::string(before && after ? "written" : "not written");
  });
  EXPECT_EQ(said, "written");
  EXPECT_EQ(text("report.html"), "before report again after");
}

// Runs as a user who may write to the file but not to its folder.
TEST_F(WriteReport, WritesDirectlyIntoAFileWhoseFolderIsNotWritable) {
  folder_.write("closed/report.html", "old and longer");
  folder_.open_to_everyone();
  const std::string inside = folder_.path("closed/report.html");
  ASSERT_EQ(::chmod(inside.c_str(), 0666), 0);
  ASSERT_EQ(::chmod(folder_.path("closed").c_str(), 0555), 0);
  const std::string said = in_child([&] {
    if (::getuid() == 0 && !become_nobody()) return std::string("still root");
    return refusal(inside) + "," + refusal(folder_.path("closed/other.html"));
  });
  EXPECT_EQ(said, "," + with_hint(EACCES));
  EXPECT_EQ(text("closed/report.html"), "new");
  EXPECT_EQ(::chmod(folder_.path("closed").c_str(), 0755), 0);
}

TEST_F(WriteReport, RefusesAFileThatThisUserMayNotWrite) {
  folder_.write("closed/report.html", "old");
  folder_.open_to_everyone();
  const std::string inside = folder_.path("closed/report.html");
  ASSERT_EQ(::chmod(inside.c_str(), 0444), 0);
  ASSERT_EQ(::chmod(folder_.path("closed").c_str(), 0555), 0);
  const std::string said = in_child([&] {
    if (::getuid() == 0 && !become_nobody()) return std::string("still root");
    return refusal(inside);
  });
  EXPECT_EQ(said, with_hint(EACCES));
  EXPECT_EQ(text("closed/report.html"), "old");
  EXPECT_EQ(::chmod(folder_.path("closed").c_str(), 0755), 0);
}

TEST_F(WriteReport, RequireWritableFindsErrorsWithoutChangingFiles) {
  folder_.write("old.html", "old");
  require_writable(path_);
  require_writable(folder_.path("old.html"));
  require_writable("/dev/stdout");
  EXPECT_EQ(names(), std::set<std::string>{"old.html"});
  EXPECT_EQ(text("old.html"), "old");
  for (const auto& [path, code] :
       {std::pair(folder_.path("none/report.html"), ENOENT), std::pair(folder_.root(), EISDIR),
        std::pair(folder_.path("old.html/report.html"), ENOTDIR),
        std::pair(std::string(), ENOENT)}) {
    try {
      require_writable(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << path;
      EXPECT_FALSE(error.hint_text().empty());
    }
  }
}

}  // namespace
}  // namespace evenkeel
