#include "cli/unpack_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/preload_library.h"
#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

class UnpackLibrary : public testing::Test {
 protected:
  UnpackLibrary() {
    std::string name = (fs::temp_directory_path() / "evenkeel-unpack-XXXXXX").string();
    base_ = fs::canonical(::mkdtemp(name.data())).string();
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
  EXPECT_THAT(refusal({place("missing/evenkeel")}), HasSubstr("No such file"));
}

TEST_F(UnpackLibrary, ChecksEveryFolderAboveBeforeItMakesOne) {
  fs::create_directories(place("open/mine"));
  ::chmod(place("open/mine").c_str(), 0700);
  ::chmod(place("open").c_str(), 0777);
  const std::string why = "open can be written by others and is not sticky";
  EXPECT_THAT(refusal({place("open/mine/evenkeel")}), HasSubstr(why));
  EXPECT_THAT(refusal({place("open/mine/new/evenkeel"), true}), HasSubstr(why));
  EXPECT_THAT(refusal({place("open/new/evenkeel"), true}), HasSubstr(why));
  EXPECT_TRUE(fs::is_empty(place("open/mine")));
  EXPECT_FALSE(fs::exists(place("open/new")));
  ::chmod(place("open").c_str(), 01777);
  EXPECT_THAT(refusal({place("open/mine/new/evenkeel"), true}), HasSubstr("unpacked to"));
}

TEST_F(UnpackLibrary, ResolvesLinksAboveTheFolderAndChecksWhereTheyLead) {
  fs::create_directory(place("real"));
  fs::create_directory_symlink(place("real"), place("link"));
  EXPECT_THAT(unpack_library("x", {{place("link/evenkeel")}}),
              StartsWith(place("real/evenkeel/lib")));
  EXPECT_THAT(unpack_library("x", {{place("link/new/evenkeel"), true}}),
              StartsWith(place("real/new/evenkeel/lib")));

  fs::create_directories(place("open/mine"));
  ::chmod(place("open").c_str(), 0777);
  fs::create_directory_symlink(place("open/mine"), place("out"));
  EXPECT_THAT(refusal({place("out/evenkeel")}), HasSubstr("is not sticky"));
  fs::create_directory_symlink(place("nowhere"), place("dangling"));
  EXPECT_THAT(refusal({place("dangling/evenkeel"), true}), HasSubstr("Not a directory"));
  EXPECT_FALSE(fs::exists(place("nowhere")));
}

TEST_F(UnpackLibrary, RefusesPathsThatTheLoaderWouldNotTakeAsTheyAre) {
  for (const std::string name : {"a b", "a:b", "$ORIGIN"}) {
    EXPECT_THAT(refusal({place(name)}), HasSubstr("has a space, a colon or a dollar sign"));
    EXPECT_FALSE(fs::exists(place(name)));
    fs::create_directory(place(name));
    fs::remove(place("link"));
    fs::create_directory_symlink(place(name), place("link"));  // only the resolved path shows it
    EXPECT_THAT(refusal({place("link/evenkeel")}), HasSubstr("a dollar sign"));
  }
}

TEST_F(UnpackLibrary, RefusesAnotherUsersFolder) {
  fs::create_directory(place("theirs"));
  if (::chown(place("theirs").c_str(), 65534, 65534) != 0) GTEST_SKIP() << "needs root";
  EXPECT_THAT(refusal({place("theirs")}), HasSubstr("theirs belongs to user 65534"));
  EXPECT_THAT(refusal({place("theirs/evenkeel")}), HasSubstr("theirs belongs to user 65534"));
  fs::create_directory(place("theirs/mine"));
  EXPECT_THAT(refusal({place("theirs/mine/evenkeel")}), HasSubstr("theirs belongs to user 65534"));
  EXPECT_TRUE(fs::is_empty(place("theirs/mine")));
}

TEST_F(UnpackLibrary, TakesTheFirstPlaceThatIsSafeAndNamesAllThatAreNot) {
  fs::create_directory(place("open"));
  ::chmod(place("open").c_str(), 0777);
  EXPECT_THAT(unpack_library("x", {{place("open")}, {place("good")}}), HasSubstr("/good/lib"));
  EXPECT_THROW(unpack_library("x", {{place("open")}, {place("none/x")}}), Error);
  EXPECT_THROW(unpack_library("x", {}), Error);
}

TEST_F(UnpackLibrary, AToolThatCarriesTheLibraryTakesNoOther) {
  std::ofstream(place("libevenkeel_guard.so")) << "planted";
  PreloadSearch search{
      .given = "", .inside = "bytes", .places = {{place("a")}}, .tool_folder = base_};
  EXPECT_EQ(content(find_preload_library(search)), "bytes");
  search.places = {{place("missing/evenkeel")}};
  EXPECT_THROW(find_preload_library(search), Error);
  search.given = place("libevenkeel_guard.so");  // only if the user says so
  EXPECT_EQ(content(find_preload_library(search)), "planted");
  search = {.given = "", .inside = "", .places = {}, .tool_folder = base_};  // an installed tool
  EXPECT_EQ(content(find_preload_library(search)), "planted");
}

TEST_F(UnpackLibrary, APathThatTheLoaderWouldNotTakeIsRefusedEverywhere) {
  fs::create_directory(place("$LIB"));
  std::ofstream(place("$LIB/libevenkeel_guard.so")) << "bytes";
  PreloadSearch search{.given = "", .inside = "", .places = {}, .tool_folder = place("$LIB")};
  EXPECT_THROW(find_preload_library(search), Error);
  search.given = place("$LIB/libevenkeel_guard.so");
  EXPECT_THROW(find_preload_library(search), Error);
}

}  // namespace
}  // namespace evenkeel::cli
