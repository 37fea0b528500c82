// If a file was truncated after its size was read and before its header was, it had no magic number
// and was read as bare uint16 tokens.
#include <gtest/gtest.h>

#include "evenkeel/tokens.h"
#include "format/token_test_files.h"
#include "tests/counting_file.h"
#include "tests/fault_script.h"

namespace evenkeel {
namespace {

TEST(ShorterWhileOpened, IsAnErrorNotAnotherFormat) {
  const TempFolder folder;
  const std::string path = folder.write("a.bin", llmc_shard(0, 700));
  FaultScript script;
  for (const bool for_good : {false, true}) {
    script.spoil(sys::Call::kPread, 0, {.at_most = 0}, for_good);
    const Error error =
        error_of([&] { Tokens::open(path, {.budget = 2_MiB, .engine = EngineKind::kRead}); });
    EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
    EXPECT_EQ(error.path(), path) << error.what();
    EXPECT_FALSE(error.hint_text().empty()) << error.what();
  }
}

}  // namespace
}  // namespace evenkeel
