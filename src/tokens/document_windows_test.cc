#include "tokens/document_windows.h"

#include <gtest/gtest.h>

#include <vector>

namespace evenkeel {
namespace {

TEST(OrderWindows, EveryPositionIsInItsWindow) {
  for (const std::uint64_t epoch : {1, 7, 24, 25}) {
    for (const std::uint64_t window : {1, 5, 8, 40}) {
      for (const std::uint64_t world : {1, 2, 3, 8}) {
        std::vector<bool> seen(3 * epoch);  // by all ranks, in three epochs
        for (std::uint64_t rank = 0; rank < world; ++rank) {
          const OrderWindows windows{epoch, window, rank, world};
          std::uint64_t last = 0;
          for (std::uint64_t mine = 0; windows.position(mine) < 3 * epoch; ++mine) {
            const std::uint64_t position = windows.position(mine), number = windows.number_of(mine);
            EXPECT_EQ(position, mine * world + rank);
            EXPECT_EQ(number,
                      position / epoch * ((epoch - 1) / window + 1) + position % epoch / window);
            EXPECT_LE(windows.first_of(number), mine);
            EXPECT_GT(windows.first_of(number + 1), mine);
            EXPECT_LE(windows.first_of(number + 1) - windows.first_of(number), windows.most());
            EXPECT_GE(number, last);
            last = number;
            seen[position] = true;
          }
        }
        EXPECT_EQ(seen, std::vector<bool>(3 * epoch, true));
      }
    }
  }
}

TEST(OrderWindows, EpochsThatBeginWithSteps) {
  // Rank 1 of 2 takes 4 of the 10 positions of an epoch (1, 3, 5 and 7), in windows of 3.
  const OrderWindows windows{10, 3, 1, 2, 4};
  std::vector<std::uint64_t> positions, numbers;
  for (std::uint64_t mine = 0; mine < 6; ++mine) {
    positions.push_back(windows.position(mine));
    numbers.push_back(windows.number_of(mine));
  }
  EXPECT_EQ(positions, (std::vector<std::uint64_t>{1, 3, 5, 7, 11, 13}));
  EXPECT_EQ(numbers, (std::vector<std::uint64_t>{0, 1, 1, 2, 3, 4}));
  EXPECT_EQ(windows.first_of(1), 1u);
  EXPECT_EQ(windows.first_of(2), 3u);
  EXPECT_EQ(windows.first_of(3), 4u);
}

// Positions that come again count on, and no window holds positions of two repetitions.
TEST(OrderWindows, RepeatedPositionsCountOn) {
  for (const std::uint64_t world : {1, 2}) {
    for (const std::uint64_t repeat : {1, 9, 10, 23}) {
      for (std::uint64_t rank = 0; rank < world; ++rank) {
        const OrderWindows plain{10, 3, rank, world};
        OrderWindows windows = plain;
        windows.repeat = repeat;
        std::uint64_t number = 0;
        for (std::uint64_t mine = 0; mine < 3 * repeat; ++mine) {
          EXPECT_EQ(windows.position(mine), plain.position(mine % repeat));
          const bool other =
              mine > 0 && (mine % repeat == 0 ||
                           plain.number_of(mine % repeat) != plain.number_of(mine % repeat - 1));
          EXPECT_EQ(windows.number_of(mine) > number, other);
          number = windows.number_of(mine);
          EXPECT_LE(windows.first_of(number), mine);
          EXPECT_GT(windows.first_of(number + 1), mine);
        }
      }
    }
  }
}

}  // namespace
}  // namespace evenkeel
