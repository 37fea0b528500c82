#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <string>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "evenkeel/prepare.h"
#include "format/test_files.h"
#include "prepare/items.h"

namespace evenkeel {
namespace {

TEST(CopyItems, SharesOfPartsAreAboveZero) {
  for (const double share : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    CopyOptions options;
    options.shares = {1, share};
    options.output = "part_{}.npy";
    try {
      copy_items(options);
      FAIL() << "accepted " << share;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("share of a part"), std::string::npos);
    }
  }
}

TEST(CopyItems, LinesHaveNoElementType) {
  CopyOptions options;
  options.input = {.paths = {"a.txt"}, .unit = ItemUnit::kLines};
  options.output = "lines.txt";
  options.dtype = DType::of<std::int16_t>();
  try {
    copy_items(options);
    FAIL() << "wrote text as numbers";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no element type"), std::string::npos);
  }
}

using LinesTest = FileTest;

// dedup, for example, reads the input twice, and would leave out other lines than it compared.
TEST_F(LinesTest, AFileThatChangesBetweenTwoPassesIsAnError) {
  const ItemInput input{.paths = {write("a.txt", "a\nb\n")}, .unit = ItemUnit::kLines};
  const auto lines = open_items(input, Budget(16_MiB), 8_MiB);
  while (lines->next()) {
  }
  write("a.txt", "b\na\nc\n");
  try {
    lines->seek({});
    lines->next();
    FAIL() << "read the changed file";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
  }
}

TEST_F(LinesTest, APipeIsNotAnEmptyFile) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const ItemInput input{.paths = {path("pipe")}, .unit = ItemUnit::kLines};
  EXPECT_THROW(open_items(input, Budget(16_MiB), 8_MiB), Error);
}

}  // namespace
}  // namespace evenkeel
