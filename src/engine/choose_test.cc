#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <cstring>
#include <filesystem>

#include "engine/engines.h"
#include "engine/test_feed.h"
#include "evenkeel/error.h"
#include "tests/forked.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

constexpr EngineKind kAll[] = {EngineKind::kAuto,   EngineKind::kMap,  EngineKind::kRemap,
                               EngineKind::kAdvise, EngineKind::kRead, EngineKind::kDirect,
                               EngineKind::kFill};

TEST(EngineNames, ReadBack) {
  for (const EngineKind kind : kAll) EXPECT_EQ(parse_engine(engine_name(kind)), kind);
}

TEST(EngineNames, AnUnknownOneIsRefusedWithTheList) {
  for (const char* name : {"", "Map", "mmap", "direct ", "auto\n"}) {
    try {
      parse_engine(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
      EXPECT_THAT(error.what(), HasSubstr("\"" + std::string(name) + "\" is not an engine"));
      EXPECT_EQ(error.hint_text(),
                "the engines are auto, map, remap, advise, read, direct, fill, remote, decode");
    }
  }
}

class ChooseTest : public testing::Test {
 protected:
  static std::unique_ptr<Engine> choose(EngineKind asked, const TestFiles& files,
                                        const Budget& budget, std::uint64_t working_room = 0) {
    return make_engine(asked, files.layout, budget, working_room);
  }
  static EngineKind chosen(const TestFiles& files, const Budget& budget,
                           std::uint64_t working_room = 0) {
    return choose(EngineKind::kAuto, files, budget, working_room)->report().chosen;
  }
  // What `auto` chooses for data that does not fit: direct if the filesystem supports it, or read.
  static void expect_streaming(EngineKind kind) {
    EXPECT_TRUE(kind == EngineKind::kDirect || kind == EngineKind::kRead) << engine_name(kind);
  }
};

TEST_F(ChooseTest, WhatIsAskedForIsGivenAndReported) {
  const TestFiles files({100'000});
  for (const EngineKind kind :
       {EngineKind::kMap, EngineKind::kRemap, EngineKind::kAdvise, EngineKind::kRead}) {
    const auto engine = choose(kind, files, Budget(16_MiB));
    EXPECT_EQ(engine->report().asked, kind);
    EXPECT_EQ(engine->report().chosen, kind);
    EXPECT_EQ(engine->report().why, "asked for");
    EXPECT_EQ(run_all(*engine, files), "each once");
  }
}

TEST_F(ChooseTest, AutoMapsDataThatFitsAndPaysForIt) {
  const TestFiles files({1 << 20});
  const Budget budget(16_MiB);
  const auto engine = choose(EngineKind::kAuto, files, budget, 1_MiB);
  const EngineReport report = engine->report();
  EXPECT_EQ(report.asked, EngineKind::kAuto);
  EXPECT_EQ(report.chosen, EngineKind::kMap);
  EXPECT_THAT(report.why, HasSubstr("fits the budget (data of 1 MiB, budget of 16 MiB"));
  EXPECT_GE(budget.in_use(), 1_MiB);
  ASSERT_NE(engine->mapped(0), nullptr);
  EXPECT_EQ(std::memcmp(engine->mapped(0), files.bytes[0].data(), 1 << 20), 0);
}

TEST_F(ChooseTest, AutoStreamsDataThatDoesNotFit) {
  const TestFiles files({3 << 20});
  const auto engine = choose(EngineKind::kAuto, files, Budget(2_MiB));
  const EngineReport report = engine->report();
  EXPECT_EQ(report.asked, EngineKind::kAuto);
  expect_streaming(report.chosen);
  EXPECT_EQ(report.chosen, disk_folder() ? EngineKind::kDirect : report.chosen);
  EXPECT_THAT(report.why, HasSubstr("does not fit the budget (data of 3 MiB, budget of 2 MiB"));
  EXPECT_EQ(engine->mapped(0), nullptr);
  EXPECT_EQ(run_all(*engine, files), "each once");
}

TEST_F(ChooseTest, AutoLeavesTheWorkingRoomFree) {
  const TestFiles files({1 << 20});
  EXPECT_EQ(chosen(files, Budget(3_MiB), 2_MiB), EngineKind::kMap);
  expect_streaming(chosen(files, Budget(3_MiB), 2_MiB + 1));
  expect_streaming(chosen(files, Budget(3_MiB), ~std::uint64_t{0}));
}

TEST_F(ChooseTest, AutoCountsWhatOthersHoldOfASharedBudget) {
  const TestFiles files({1 << 20});
  const Budget budget(16_MiB);
  const Reservation other = budget.reserve(13_MiB, "another array");
  EXPECT_EQ(chosen(files, budget, 1_MiB), EngineKind::kMap);
  expect_streaming(chosen(files, budget, 2_MiB + 1));
}

TEST_F(ChooseTest, AutoCountsTheWholeFileNotOnlyTheArrayInIt) {
  // A page fault also reads the pages around it, even outside the array.
  TestFiles files({8 << 20});
  files.layout = read_layout({files.path(0)}, {.dtype = DType::of<std::uint8_t>(), .shape = {100}});
  ASSERT_EQ(files.layout.bytes(), 100u);
  expect_streaming(chosen(files, Budget(4_MiB)));
}

TEST_F(ChooseTest, AutoCountsWholePagesOfManySmallFiles) {
  const TestFiles files(std::vector<std::size_t>(300, 100));
  expect_streaming(chosen(files, Budget(1_MiB)));  // 30,000 bytes, but 300 pages
}

// Linux refuses more than about 65,000 mappings, and memory and threads need some of them.
TEST_F(ChooseTest, AutoMapsOnlySoManyFiles) {
  TestFiles files({1000});
  Layout& layout = files.layout;
  const Segment first = layout.segments[0];
  while (layout.segments.size() < 16'384) {
    layout.segments.push_back(first);
    layout.segments.back().first_row = layout.rows;
    layout.rows += first.rows;
  }
  EXPECT_EQ(chosen(files, Budget(4_GiB)), EngineKind::kMap);
  layout.segments.push_back(first);
  layout.segments.back().first_row = layout.rows;
  layout.rows += first.rows;
  const auto engine = choose(EngineKind::kAuto, files, Budget(4_GiB));
  expect_streaming(engine->report().chosen);
  EXPECT_THAT(engine->report().why, HasSubstr("16,385 files, too many to map"));
}

// ramfs does not support O_DIRECT; tmpfs does since Linux 6.6.
TEST_F(ChooseTest, DirectAndAutoFallBackToReadAndSayWhy) {
  const TempFolder mount_point;
  const std::string said = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, "") != 0 ||
        ::mount("ramfs", mount_point.root().c_str(), "ramfs", 0, "") != 0) {
      return std::string("may not mount");
    }
    const TestFiles files({300'001}, mount_point.root());
    std::string all;
    for (const EngineKind asked : {EngineKind::kDirect, EngineKind::kAuto}) {
      const auto engine = choose(asked, files, Budget(256_KiB));
      const EngineReport report = engine->report();
      all += run_all(*engine, files) + ", " + std::string(engine_name(report.asked)) + " became " +
             std::string(engine_name(report.chosen)) + ": " + report.why + "\n";
    }
    return all;
  });
  if (said == "may not mount") GTEST_SKIP() << "this user may not mount a ramfs";
  EXPECT_THAT(said, HasSubstr("each once, direct became read: asked for; the filesystem of "));
  EXPECT_THAT(said, HasSubstr("each once, auto became read: the data does not fit the budget ("));
  EXPECT_THAT(said, HasSubstr("does not take O_DIRECT"));
}

TEST_F(ChooseTest, ABudgetTooSmallForAnyBufferIsRefusedWithTheArithmetic) {
  const TestFiles files({300'001});
  for (const EngineKind kind :
       {EngineKind::kRemap, EngineKind::kAdvise, EngineKind::kRead, EngineKind::kDirect}) {
    try {
      choose(kind, files, Budget(32_KiB));
      ADD_FAILURE() << engine_name(kind);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBudget);
      EXPECT_THAT(error.what(), HasSubstr("the budget is 32,768 bytes"));
    }
  }
}

}  // namespace
}  // namespace evenkeel
