// If the clock jumped back, old answers about the page cache were trusted until it had caught up.
#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/fd.h"
#include "engine/page_cache.h"
#include "tests/fault_script.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

TEST(ClockBack, WhatIsKnownOfTheCacheIsForgotten) {
  const TempFolder folder;
  const Fd fd = open_readable(folder.write("data", random_bytes(100'000)));
  if (!is_cached(fd.get(), 0, 100'000)) GTEST_SKIP() << "the kernel does not tell what is cached";
  Residency residency(100'000, 0);
  residency.age();
  residency.surely_cached(fd.get(), 0, 100);
  ASSERT_TRUE(residency.surely_cached(fd.get(), 0, 100));
  FaultScript script;
  script.spoil(sys::Call::kClock, 0, {.clock_jump_ns = -3'600'000'000'000}, true);
  residency.age();
  EXPECT_FALSE(residency.surely_cached(fd.get(), 0, 100));  // the second call asks the kernel again
}

}  // namespace
}  // namespace evenkeel
