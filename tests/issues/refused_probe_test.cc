// The look whether a filesystem reads with O_DIRECT left its block behind when the file could not
// be opened. Seen by AddressSanitizer, in the `dev` build.
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
  EXPECT_GE(refused, 1u);  // the later ones are tried again in another way
}

}  // namespace
}  // namespace evenkeel
