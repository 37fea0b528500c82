#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "evenkeel/error.h"
#include "evenkeel/prepare.h"

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

}  // namespace
}  // namespace evenkeel
