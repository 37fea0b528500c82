#include <gtest/gtest.h>

#include <cerrno>
#include <optional>

#include "format/test_files.h"

namespace evenkeel {
namespace {

class PathsTest : public FileTest {
 protected:
  using Paths = std::vector<std::string>;
  Paths expand(std::string_view pattern) const { return expand_paths(path(pattern)); }

  std::optional<Error> expand_error(std::string_view pattern) const {
    try {
      expand(pattern);
    } catch (const Error& error) {
      return error;
    }
    return std::nullopt;
  }
};

TEST_F(PathsTest, MatchesComeSortedByBytes) {
  for (const char* name : {"b_2.bin", "b_10.bin", "B_1.bin", "a.bin", "b_2.txt"}) write(name, "x");
  EXPECT_EQ(expand("*.bin"),
            (Paths{path("B_1.bin"), path("a.bin"), path("b_10.bin"), path("b_2.bin")}));
  EXPECT_EQ(expand("b_?.bin"), Paths{path("b_2.bin")});
  EXPECT_EQ(expand("[aB]*.bin"), (Paths{path("B_1.bin"), path("a.bin")}));
}

TEST_F(PathsTest, PathThatExistsIsNotAPattern) {
  write("a[1].bin", "x");
  write("a1.bin", "x");
  EXPECT_EQ(expand("a[1].bin"), Paths{path("a[1].bin")});
  write("star*", "x");
  write("star_too", "x");
  EXPECT_EQ(expand("star*"), Paths{path("star*")});
}

TEST_F(PathsTest, NoMatchIsENOENT) {
  for (const char* pattern : {"*.bin", "none.bin", "no_folder/*.bin", "[", ""}) {
    const auto error = expand_error(std::string("missing/") + pattern);
    ASSERT_TRUE(error) << pattern;
    EXPECT_EQ(error->kind(), ErrorKind::kSystem);
    EXPECT_EQ(error->code(), ENOENT);
    EXPECT_FALSE(error->hint_text().empty());
  }
}

TEST_F(PathsTest, ZeroByteInAPathIsRefused) {
  const auto error = expand_error(std::string_view("a\0b", 3));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::kInvalid);
}

}  // namespace
}  // namespace evenkeel
