#include "evenkeel/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace evenkeel {
namespace {

TEST(ErrorMessage, ReadsAsTheHeaderShowsIt) {
  const Error error = Error(ErrorKind::kFormat, "open", "header says 12 bytes, the file has 10")
                          .in("a/b.npy")
                          .at(8)
                          .hint("the download may be incomplete");
  EXPECT_STREQ(error.what(),
               "open a/b.npy: header says 12 bytes, the file has 10 (at byte 8)\n"
               "hint: the download may be incomplete");
}

TEST(ErrorMessage, LeavesOutWhatWasNotSaid) {
  EXPECT_STREQ(Error(ErrorKind::kInvalid, "size", "is empty").what(), "size: is empty");
  EXPECT_STREQ(Error(ErrorKind::kIndex, "read", "x").in("f").what(), "read f: x");
  EXPECT_STREQ(Error(ErrorKind::kIndex, "read", "x").at(0).what(), "read: x (at byte 0)");
}

TEST(ErrorMessage, DoesNotDependOnTheOrderOfItsParts) {
  const Error one = Error(ErrorKind::kFormat, "open", "p").in("f").at(3).hint("h");
  const Error other = Error(ErrorKind::kFormat, "open", "p").hint("h").at(3).in("f");
  EXPECT_STREQ(one.what(), other.what());
}

TEST(ErrorParts, AreKeptApart) {
  const Error error = Error(ErrorKind::kBudget, "budget", "p").in("f").at(1ull << 40).hint("h");
  EXPECT_EQ(error.kind(), ErrorKind::kBudget);
  EXPECT_EQ(error.operation(), "budget");
  EXPECT_EQ(error.path(), "f");
  EXPECT_EQ(error.offset(), 1ull << 40);
  EXPECT_EQ(error.hint_text(), "h");
  EXPECT_EQ(error.code(), 0);
  EXPECT_EQ(Error(ErrorKind::kBudget, "budget", "p").offset(), std::nullopt);
}

TEST(SystemError, CarriesErrnoAndTheSystemsWords) {
  const Error bare = Error::system("open", ENOENT).in("f");
  EXPECT_EQ(bare.kind(), ErrorKind::kSystem);
  EXPECT_EQ(bare.code(), ENOENT);
  EXPECT_STREQ(bare.what(), "open f: No such file or directory");
  const Error told = Error::system("map", ENOMEM, "1 GiB of the file");
  EXPECT_STREQ(told.what(), "map: 1 GiB of the file: Cannot allocate memory");
}

TEST(ErrorCopy, OutlivesTheOriginal) {
  auto original = std::make_unique<Error>(Error(ErrorKind::kFormat, "open", "p").in("f").at(7));
  const Error copy = *original;
  const std::string said = original->what();
  original.reset();
  EXPECT_EQ(copy.what(), said);
  EXPECT_EQ(copy.offset(), 7u);
}

TEST(ErrorClass, IsCaughtAsAStandardException) {
  try {
    throw Error(ErrorKind::kClosed, "read", "the array is closed");
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "read: the array is closed");
  }
}

}  // namespace
}  // namespace evenkeel
