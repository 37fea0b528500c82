// A file cut short between the look at its size and the look at its head: without a head it has no
// magic, and was taken for bare uint16 tokens.
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
