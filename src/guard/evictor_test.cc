#include "guard/evictor.h"

#include <gtest/gtest.h>

#include "evenkeel/bytes.h"
#include "guard/test_mapping.h"

namespace evenkeel {
namespace {

// A mapping whose pages stay, and of which each part takes longer than a step of the evictor.
class SlowMapping : public GuardedMapping {
 public:
  SlowMapping(std::uint64_t bytes, int fd) : GuardedMapping(1, {0, bytes}, 0), fd_(fd) {}
  int descriptor() const override { return fd_; }
  bool still_there() const override { return true; }
  int let_go(AddressRange) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(6));
    return 0;
  }
  int advise(AddressRange, int) override { return 0; }
  bool count_resident(AddressRange, AccessSample&) const override { return false; }

 private:
  const int fd_;
};

// Also if not every part can be tried in one step. Otherwise the evictor would never pause.
TEST(Evictor, PausesIfNothingCanBeReleased) {
  const NumberFile file(16_MiB);
  if (!file.can_be_dropped()) GTEST_SKIP() << "the page cache cannot be dropped or counted here";
  const TestMapping map(file);
  EXPECT_EQ(wrong_in_scan(map, file.words()), 0u);  // mapped pages cannot be dropped
  Evictor evictor({{.budget = 4_MiB, .access = GuardAccess::kLeave}, false},
                  std::make_unique<OwnActivity>());
  evictor.add(std::make_unique<SlowMapping>(file.bytes(), file.fd()), Fd());
  const auto paused = [&] {
    return std::ranges::any_of(evictor.report().failures, [](const std::string& one) {
      return one.starts_with("pages stay in the page cache after release");
    });
  };
  EXPECT_TRUE(until(paused, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }));
}

}  // namespace
}  // namespace evenkeel
