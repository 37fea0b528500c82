#include "base/fd.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "evenkeel/error.h"
#include "tests/forked.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

class FdTest : public testing::Test {
 protected:
  static Error refusal(const std::string& path) {
    try {
      open_readable(path);
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorKind::kClosed, "nothing", "it was opened");
  }
  static bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

  TempFolder folder_;
};

TEST_F(FdTest, ClosesItselfOnce) {
  int number;
  {
    const Fd fd = open_readable(folder_.write("f", "x"));
    number = fd.get();
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST_F(FdTest, MovesAndClosesWhatItOverwrites) {
  Fd a = open_readable(folder_.write("a", "x"));
  Fd b = open_readable(folder_.write("b", "x"));
  const int first = a.get(), second = b.get();
  a = std::move(b);
  EXPECT_FALSE(is_open(first));
  EXPECT_EQ(a.get(), second);
  EXPECT_FALSE(b);  // NOLINT: a moved-from descriptor is empty
  Fd& same = a;
  a = std::move(same);
  EXPECT_TRUE(is_open(a.get()));
  a.reset();
  a.reset();
  EXPECT_FALSE(is_open(second));
}

TEST_F(FdTest, DoesNotCrossExec) {
  const Fd fd = open_readable(folder_.write("f", "x"));
  EXPECT_TRUE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC);
}

TEST_F(FdTest, SaysWhatIsMissing) {
  const Error error = refusal(folder_.path("missing"));
  EXPECT_EQ(error.kind(), ErrorKind::kSystem);
  EXPECT_EQ(error.code(), ENOENT);
  EXPECT_EQ(error.path(), folder_.path("missing"));
  EXPECT_FALSE(error.hint_text().empty());
  EXPECT_EQ(refusal("").code(), ENOENT);
  EXPECT_EQ(refusal(folder_.write("f", "x") + "/below").code(), ENOTDIR);
}

TEST_F(FdTest, RefusesADirectory) {
  const Error error = refusal(folder_.root());
  EXPECT_EQ(error.code(), EISDIR);
  EXPECT_THAT(error.what(), HasSubstr(folder_.root()));
}

TEST_F(FdTest, RefusesAFifoWithoutWaitingForAWriter) {
  ASSERT_EQ(::mkfifo(folder_.path("fifo").c_str(), 0600), 0);
  const Error error = refusal(folder_.path("fifo"));
  EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
  EXPECT_THAT(error.what(), HasSubstr("is not a regular file"));
}

TEST_F(FdTest, RefusesADevice) {
  EXPECT_THAT(refusal("/dev/zero").what(), HasSubstr("is not a regular file"));
}

TEST_F(FdTest, RefusalsLeakNoDescriptor) {
  const int before = ::dup(0);
  ::close(before);
  refusal(folder_.root());
  refusal("/dev/zero");
  const int after = ::dup(0);
  ::close(after);
  EXPECT_EQ(after, before);  // the lowest free number is the same
}

TEST_F(FdTest, SaysWhenThisUserMayNotRead) {
  const std::string path = folder_.write("secret", "x");
  folder_.open_to_everyone();
  ASSERT_EQ(::chmod(path.c_str(), 0000), 0);
  const std::string said = in_child([&] {
    if (::getuid() == 0 && !become_nobody()) return std::string("still root");
    const Error error = refusal(path);
    return std::to_string(error.code()) + error.hint_text();
  });
  EXPECT_EQ(said, std::to_string(EACCES) + "the file must be readable by this user");
}

class ReadUpto : public FdTest {
 protected:
  std::string read(const std::string& path, std::uint64_t offset, std::size_t length) {
    const Fd fd = open_readable(path);
    std::vector<std::byte> out(length, std::byte{0xee});
    const std::size_t got = read_upto(fd.get(), offset, out, path);
    EXPECT_TRUE(std::all_of(out.begin() + static_cast<std::ptrdiff_t>(got), out.end(),
                            [](std::byte b) { return b == std::byte{0xee}; }));
    return {reinterpret_cast<const char*>(out.data()), got};
  }
};

TEST_F(ReadUpto, FillsTheSpanInTheMiddleOfAFile) {
  EXPECT_EQ(read(folder_.write("f", "0123456789"), 3, 4), "3456");
}

TEST_F(ReadUpto, IsShortOnlyAtTheEnd) {
  const std::string path = folder_.write("f", "0123456789");
  EXPECT_EQ(read(path, 7, 100), "789");
  EXPECT_EQ(read(path, 10, 5), "");
  EXPECT_EQ(read(path, 1ull << 40, 5), "");
  EXPECT_EQ(read(path, 0, 0), "");
  EXPECT_EQ(read(folder_.write("empty", ""), 0, 5), "");
}

TEST_F(ReadUpto, NamesPathAndOffsetWhenTheSystemRefuses) {
  std::byte out[4];
  const Fd folder(::open(folder_.root().c_str(), O_RDONLY | O_CLOEXEC));
  for (const auto& [fd, code] : {std::pair{-1, EBADF}, std::pair{folder.get(), EISDIR}}) {
    try {
      read_upto(fd, 12, out, "some/path");
      ADD_FAILURE() << "read from " << fd;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_EQ(error.path(), "some/path");
      EXPECT_EQ(error.offset(), 12u);
    }
  }
}

}  // namespace
}  // namespace evenkeel
