// The check whether a filesystem supports O_DIRECT leaked its block if it could not open the file.
// AddressSanitizer (preset dev) reported it.
#include <gtest/gtest.h>

#include "tests/counting_file.h"
#include "tests/fault_script.h"

namespace evenkeel {
namespace {

TEST(RefusedProbe, LeavesNothingBehind) {
  const TempFolder folder(disk_folder().value_or(std::filesystem::temp_directory_path()));
  const std::string path = counting_file(folder, "numbers", 80'000);
  FaultScript script;
  std::uint64_t spoiled = 0, refused = 0;
  bool reached = true;
  for (std::uint64_t ordinal = 0; reached; ++ordinal) {
    script.spoil(sys::Call::kOpen, ordinal, {.error = EMFILE});
    const Error error =
        error_of([&] { Array::open(path, counted(8, 1_MiB, EngineKind::kDirect)); });
    reached = script.reached();
    spoiled += reached;
    refused += error.code() == EMFILE;
  }
  EXPECT_GE(spoiled, 3u);  // the header, the alignment, the probe
  EXPECT_GE(refused, 1u);  // after later ones, another way to read is tried
}

}  // namespace
}  // namespace evenkeel
