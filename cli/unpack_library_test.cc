#include "cli/unpack_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class UnpackLibrary : public testing::Test {
 protected:
  UnpackLibrary() {
    std::string name = (fs::temp_directory_path() / "evenkeel-unpack-XXXXXX").string();
    base_ = ::mkdtemp(name.data());
  }
  ~UnpackLibrary() override { fs::remove_all(base_); }

  std::string place(const std::string& name) const { return base_ + "/" + name; }
  std::string refusal(const UnpackPlace& where) const {
    try {
      return "unpacked to " + unpack_library("bytes", {where});
    } catch (const Error& error) {
      return error.what();
    }
  }
  static std::string content(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static mode_t mode(const std::string& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
    return status.st_mode & 07777U;
  }

  std::string base_;
};

TEST_F(UnpackLibrary, MakesAPrivateFolderAndOneFile) {
  const std::string path = unpack_library("bytes", {{place("new/evenkeel"), true}});
  EXPECT_EQ(content(path), "bytes");
  EXPECT_EQ(mode(place("new/evenkeel")), 0700U);
  EXPECT_EQ(mode(path), 0500U);
  EXPECT_EQ(std::distance(fs::directory_iterator(place("new/evenkeel")), {}), 1);
}

TEST_F(UnpackLibrary, UsesWhatIsThereIfAllItsBytesAreRight) {
  const std::string path = unpack_library("bytes", {{place("a")}});
  struct stat first {
  }, second{}, third{};
  ::stat(path.c_str(), &first);
  EXPECT_EQ(unpack_library("bytes", {{place("a")}}), path);
  ::stat(path.c_str(), &second);
  EXPECT_EQ(first.st_ino, second.st_ino);

  fs::permissions(path, fs::perms::owner_write, fs::perm_options::add);
  std::ofstream(path) << "bytez";
  EXPECT_EQ(unpack_library("bytes", {{place("a")}}), path);
  ::stat(path.c_str(), &third);
  EXPECT_NE(first.st_ino, third.st_ino);
  EXPECT_EQ(content(path), "bytes");
}

TEST_F(UnpackLibrary, ReplacesALinkAndNeverWritesThroughIt) {
  const std::string path = unpack_library("bytes", {{place("a")}});
  std::ofstream(place("victim")) << "precious";
  fs::remove(path);
  fs::create_symlink(place("victim"), path);
  EXPECT_EQ(unpack_library("bytes", {{place("a")}}), path);
  EXPECT_FALSE(fs::is_symlink(path));
  EXPECT_EQ(content(place("victim")), "precious");
}

TEST_F(UnpackLibrary, RefusesFoldersThatOthersControl) {
  fs::create_directory(place("open"));
  ::chmod(place("open").c_str(), 0777);
  EXPECT_THAT(refusal({place("open")}), HasSubstr("open can be written by others"));
  EXPECT_THAT(refusal({place("open/evenkeel")}), HasSubstr("is not sticky"));
  ::chmod(place("open").c_str(), 01777);  // as /tmp
  EXPECT_THAT(refusal({place("open/evenkeel")}), HasSubstr("unpacked to"));

  fs::create_directory(place("real"));
  fs::create_directory_symlink(place("real"), place("link"));
  EXPECT_THAT(refusal({place("link")}), HasSubstr("link: Not a directory"));
  EXPECT_THAT(refusal({place("a b")}), HasSubstr("has a blank or a colon"));
  EXPECT_THAT(refusal({place("missing/evenkeel")}), HasSubstr("No such file"));
}

TEST_F(UnpackLibrary, RefusesAnotherUsersFolder) {
  fs::create_directory(place("theirs"));
  if (::chown(place("theirs").c_str(), 65534, 65534) != 0) GTEST_SKIP() << "needs root";
  EXPECT_THAT(refusal({place("theirs")}), HasSubstr("theirs belongs to user 65534"));
  EXPECT_THAT(refusal({place("theirs/evenkeel")}), HasSubstr("theirs belongs to user 65534"));
}

TEST_F(UnpackLibrary, TakesTheFirstPlaceThatIsSafeAndNamesAllThatAreNot) {
  fs::create_directory(place("open"));
  ::chmod(place("open").c_str(), 0777);
  EXPECT_THAT(unpack_library("x", {{place("open")}, {place("good")}}), HasSubstr("/good/lib"));
  EXPECT_THROW(unpack_library("x", {{place("open")}, {place("none/x")}}), Error);
  EXPECT_THROW(unpack_library("x", {}), Error);
}

}  // namespace
}  // namespace evenkeel::cli
