// A failed system call was taken for a missing file: if lstat failed on a Megatron index, the .bin
// beside it was read as uint16, and if a folder could not be read completely, shards were missing.
#include <gtest/gtest.h>

#include "evenkeel/tokens.h"
#include "format/token_test_files.h"
#include "tests/counting_file.h"
#include "tests/fault_script.h"

namespace evenkeel {
namespace {

TEST(OverlookedFiles, AnIndexThatCannotBeLookedAtIsAnError) {
  const TempFolder folder;
  const std::string path = folder.write("m.bin", counting<std::uint32_t>(0, 1000));
  folder.write("m.idx", MegatronIndex::of({1000}, 4, 4).bytes());
  FaultScript script;
  for (std::uint64_t ordinal = 0; ordinal < 8; ++ordinal) {
    for (const int code : {EIO, ENOMEM, ESTALE}) {
      script.spoil(sys::Call::kLstat, ordinal, {.error = code});
      const Error error = error_of([&] {
        const Tokens tokens = Tokens::open(path, {.budget = 2_MiB, .engine = EngineKind::kRead});
        EXPECT_EQ(tokens.size(), 1000u);
        EXPECT_EQ(tokens.dtype(), kI32);
      });
      if (script.reached()) {
        EXPECT_EQ(error.code(), code) << error.what();
      }
    }
  }
}

TEST(OverlookedFiles, AFolderThatCannotBeReadToItsEndIsAnError) {
  const TempFolder folder;
  for (int i = 0; i < 5; ++i) {
    folder.write("part" + std::to_string(i) + "/a.bin", counting<std::uint16_t>(0, 100));
  }
  FaultScript script;
  bool reached = true;
  std::uint64_t ordinal = 0;
  for (; reached; ++ordinal) {
    for (const int code : {EIO, EMFILE}) {
      script.spoil(sys::Call::kReadFolder, ordinal, {.error = code});
      std::size_t found = 0;
      const Error error =
          error_of([&] { found = expand_paths(folder.path("part*/*.bin")).size(); });
      reached = script.reached();
      if (reached) {
        EXPECT_EQ(error.code(), code) << found << " found; " << error.what();
      } else {
        EXPECT_EQ(found, 5u);
      }
    }
  }
  EXPECT_GT(ordinal, 12u);  // six folders opened and read
}

}  // namespace
}  // namespace evenkeel
