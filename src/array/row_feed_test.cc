#include "array/row_feed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>

#include "array/row_extents.h"
#include "base/checked.h"
#include "format/chunk_grid.h"

namespace evenkeel {
namespace {

using Bytes = std::vector<std::byte>;

// Files that exist only in memory, so that every byte and every order of arrival can be chosen.
struct World {
  Layout layout;
  std::vector<Bytes> files;

  // The row as a user sees it, element by element.
  void append_row(std::uint64_t row, Bytes& out) const {
    const std::uint64_t item = layout.dtype.size;
    const Segment& segment = layout.segments[segment_of(layout, row)];
    const Bytes& file = files[segment_of(layout, row)];
    const std::uint64_t columns = layout.row_bytes / item, within = row - segment.first_row;
    const std::size_t begin = out.size();
    out.resize(begin + layout.row_bytes);
    for (std::uint64_t column = 0; column < columns; ++column) {
      const std::uint64_t stored =
          layout.fortran ? column * segment.rows + within : within * columns + column;
      const std::uint64_t place = layout.fortran ? column_place(layout, column) : column * item;
      std::byte* element = out.data() + begin + place;
      std::memcpy(element, file.data() + segment.data_offset + stored * item, item);
      if (layout.swapped) std::reverse(element, element + item);
    }
  }
};

struct Random {
  std::mt19937_64 engine{7};
  std::uint64_t below(std::uint64_t n) { return engine() % n; }
  bool coin() { return below(2) == 0; }
};

World make_world(Random& random) {
  World world;
  Layout& layout = world.layout;
  constexpr std::uint32_t kSizes[] = {1, 2, 4, 8};
  layout.dtype = {DTypeKind::kUint, kSizes[random.below(4)]};
  layout.fortran = random.coin();
  layout.swapped = random.coin();
  layout.shape = {0, 1 + random.below(4), 1 + random.below(3)};
  layout.row_bytes = layout.dtype.size * layout.shape[1] * layout.shape[2];
  const std::uint64_t files = 1 + random.below(4);
  for (std::uint64_t i = 0; i < files; ++i) {
    Segment segment;
    segment.data_offset = random.below(100);
    segment.first_row = layout.rows;
    segment.rows = 1 + random.below(200);
    layout.rows += segment.rows;
    Bytes bytes(segment.data_offset + segment.rows * layout.row_bytes + random.below(50));
    for (auto& byte : bytes) byte = static_cast<std::byte>(random.below(256));
    segment.identity.size = bytes.size();
    layout.segments.push_back(segment);
    world.files.push_back(std::move(bytes));
  }
  layout.shape[0] = layout.rows;
  return world;
}

// Pulls up to `depth` extents at a time and delivers them in any order, in all three ways that a
// feed accepts. Checks what every engine relies on.
class FakeEngine final : public Engine {
 public:
  FakeEngine(const World& world, Random& random) : world_(world), random_(random) {
    limits_.alignment = std::uint64_t{1} << random.below(7);
    limits_.max_request = limits_.alignment * (1 + random.below(20));
    limits_.merge_gap = random.below(200);
    depth_ = 1 + random.below(20);
  }

  void run(Feed& feed) override {
    std::vector<Extent> in_flight;
    while (true) {
      Extent extent;
      while (in_flight.size() < depth_ && feed.next(extent)) in_flight.push_back(extent);
      if (in_flight.empty()) return;
      std::swap(in_flight[random_.below(in_flight.size())], in_flight.back());
      extent = in_flight.back();
      in_flight.pop_back();
      if (arrivals_before_failure && (*arrivals_before_failure)-- == 0) {
        arrivals_before_failure.reset();
        throw Error(ErrorKind::kSystem, "read", "as asked");
      }
      deliver(extent, feed);
      if (after_arrival) after_arrival();
    }
  }
  EngineLimits limits() const override { return limits_; }
  EngineReport report() const override { return {}; }

  std::optional<std::uint64_t> arrivals_before_failure;
  std::function<void()> after_arrival;
  std::uint64_t in_place = 0;

 private:
  void deliver(const Extent& extent, Feed& feed) {
    const Bytes& file = world_.files.at(extent.file);
    ASSERT_EQ(extent.offset % limits_.alignment, 0u);
    ASSERT_EQ(extent.length % limits_.alignment, 0u);
    ASSERT_GE(extent.length, 1u);
    ASSERT_LE(extent.length, limits_.max_request);
    ASSERT_LT(extent.offset, file.size());
    const std::uint64_t length = std::min(extent.length, file.size() - extent.offset);
    Bytes data(extent.length, std::byte{0xee});  // beyond the end of the file there is garbage
    std::memcpy(data.data(), file.data() + extent.offset, length);
    if (extent.into) {
      ++in_place;
      std::memcpy(extent.into, data.data(), extent.length);
      return feed.arrived(extent, extent.into);
    }
    if (const auto target = feed.target(extent); target && random_.coin()) {
      ASSERT_GE(target->offset, extent.offset);
      ASSERT_LE(target->offset + target->length, extent.offset + length);
      std::memcpy(target->out, file.data() + target->offset, target->length);
      return feed.arrived(extent, nullptr);
    }
    feed.arrived(extent, data.data());
  }

  const World& world_;
  Random& random_;
  EngineLimits limits_;
  std::size_t depth_;
};

// Supplies jobs one after the other, and counts which are done.
class Jobs final : public JobSource {
 public:
  struct Entry {
    std::vector<std::uint64_t> starts;
    Bytes memory, want;
    std::byte* out = nullptr;
    Job job;
    int done = 0;
  };

  Entry& add(const World& world, std::vector<std::uint64_t> starts, std::uint64_t count) {
    Entry& entry = entries_.emplace_back();
    entry.starts = std::move(starts);
    for (const auto start : entry.starts) {
      for (std::uint64_t i = 0; i < count; ++i) world.append_row(start + i, entry.want);
    }
    entry.memory.resize(entry.want.size(), std::byte{0xcd});
    entry.out = entry.memory.data();
    entry.job.starts = entry.starts;
    entry.job.count = count;
    entry.job.out = entry.out;
    return entry;
  }
  Job* next_job() override { return next_ < entries_.size() ? &entries_[next_++].job : nullptr; }
  void job_done(Job& job) override {
    for (Entry& entry : entries_) entry.done += &entry.job == &job ? 1 : 0;
  }

  void expect_all_right() const {
    for (const Entry& entry : entries_) {
      EXPECT_EQ(entry.done, 1);
      // Not a loop over bytes, which takes a hundred times as long: tests are not optimised.
      EXPECT_EQ(std::memcmp(entry.want.data(), entry.out, entry.want.size()), 0);
    }
  }
  std::size_t taken() const { return next_; }
  std::size_t size() const { return entries_.size(); }
  void forget() {
    entries_.clear();
    next_ = 0;
  }

 private:
  std::deque<Entry> entries_;
  std::size_t next_ = 0;
};

void add_random_job(Jobs& jobs, const World& world, Random& random, std::uint64_t most_starts) {
  const std::uint64_t count = 1 + random.below(random.coin() ? 1 : world.layout.rows);
  // A few starts of many rows fill as many windows as many starts of one row.
  std::vector<std::uint64_t> starts(random.below(count == 1 ? most_starts : most_starts / 30));
  for (auto& start : starts) start = random.below(world.layout.rows - count + 1);
  jobs.add(world, std::move(starts), count);
}

constexpr std::uint64_t kSmallWindow = 1;  // a budget with the smallest window: 16 pieces

TEST(RowFeed, JobsOfAllShapesArriveInTheOrderAskedFor) {
  Random random;
  for (int round = 0; round < 200; ++round) {
    const World world = make_world(random);
    FakeEngine engine(world, random);
    Jobs jobs;
    for (int i = 0; i < 6; ++i) add_random_job(jobs, world, random, 300);
    RowFeed mover(world.layout, engine, jobs, std::nullopt, kSmallWindow);
    engine.run(mover);
    ASSERT_EQ(jobs.taken(), jobs.size());
    jobs.expect_all_right();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST(RowFeed, AJobOfManyWindowsIsPlannedWindowByWindow) {
  Random random;
  const World world = make_world(random);
  FakeEngine engine(world, random);
  Jobs jobs;
  std::vector<std::uint64_t> starts(10'000);
  for (auto& start : starts) start = random.below(world.layout.rows);
  jobs.add(world, starts, 1);
  RowFeed mover(world.layout, engine, jobs, std::nullopt, kSmallWindow);
  engine.run(mover);
  jobs.expect_all_right();
}

TEST(RowFeed, JobsWithNothingInThemAreDoneToo) {
  Random random;
  const World world = make_world(random);
  FakeEngine engine(world, random);
  Jobs jobs;
  jobs.add(world, {}, 1);
  jobs.add(world, {0}, 0);
  jobs.add(world, {0}, 1);
  RowFeed mover(world.layout, engine, jobs, std::nullopt, kSmallWindow);
  engine.run(mover);
  jobs.expect_all_right();
}

TEST(RowFeed, ARoomyJobIsReadInPlace) {
  Random random;
  for (int round = 0; round < 100; ++round) {
    World world = make_world(random);
    world.layout.fortran = false;
    FakeEngine engine(world, random);
    const std::uint64_t alignment = engine.limits().alignment;
    const Segment& segment = world.layout.segments.back();
    Jobs jobs;
    auto& entry = jobs.add(world, {segment.first_row}, segment.rows);
    // Room on both sides, and the same misalignment as in the file.
    entry.memory.assign(entry.want.size() + 3 * alignment, std::byte{0xcd});
    const auto address = reinterpret_cast<std::uintptr_t>(entry.memory.data());
    entry.out = entry.memory.data() + (round_up(address, alignment) - address) +
                segment.data_offset % alignment;
    entry.job.out = entry.out;
    entry.job.roomy = true;
    RowFeed mover(world.layout, engine, jobs, std::nullopt, kSmallWindow);
    engine.run(mover);
    jobs.expect_all_right();
    EXPECT_GT(engine.in_place, 0u);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST(RowFeed, TheCallersMergeGapOverridesTheEngines) {
  Random random;
  World world = make_world(random);
  world.layout.fortran = false;
  FakeEngine engine(world, random);
  const auto requests = [&](std::uint64_t gap) {
    Jobs jobs;
    jobs.add(world, {0, world.layout.segments[0].rows - 1}, 1);
    RowFeed mover(world.layout, engine, jobs, gap, kSmallWindow);
    std::uint64_t bytes = 0;
    for (Extent extent; mover.next(extent);) bytes += extent.length;
    return bytes;
  };
  EXPECT_LT(requests(0), requests(1 << 20));
}

// Extents that are aligned to blocks of the cache must not be longer than the engine allows.
TEST(RowFeed, WithACacheItKeepsToTheLimitsOfTheEngine) {
  Random random;
  for (int round = 0; round < 100; ++round) {
    World world = make_world(random);
    world.layout.fortran = false;
    world.layout.chunks = std::make_shared<ChunkGrid>();  // no files, whose state would be checked
    FakeEngine engine(world, random);
    RowCache cache(world.layout, Budget(4_MiB), 1_MiB);
    ASSERT_EQ(cache.alignment(), 1024u);
    const Segment& first = world.layout.segments[0];
    Bytes row(world.layout.row_bytes);
    const Piece again{0, first.data_offset, row.size(), row.data()};
    for (int i = 0; i < 1000 && !cache.on(); ++i) {
      cache.put(again, again.offset, again.length, world.files[0].data() + again.offset);
    }
    ASSERT_TRUE(cache.on());
    Jobs jobs;
    for (int i = 0; i < 6; ++i) add_random_job(jobs, world, random, 300);
    RowFeed mover(world.layout, engine, jobs, std::nullopt, kSmallWindow, &cache);
    engine.run(mover);
    jobs.expect_all_right();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST(RowFeed, AfterCancelNoMoreIsAskedForAndTheRunEnds) {
  Random random;
  const World world = make_world(random);
  FakeEngine engine(world, random);
  Jobs jobs;
  for (int i = 0; i < 50; ++i) add_random_job(jobs, world, random, 300);
  RowFeed mover(world.layout, engine, jobs, std::nullopt, kSmallWindow);
  engine.after_arrival = [&] { mover.cancel(); };
  engine.run(mover);
  EXPECT_LT(jobs.taken(), jobs.size());
  Extent extent;
  EXPECT_FALSE(mover.next(extent));
}

TEST(RowFeed, ResetForgetsACancelledRunAndServesAgain) {
  Random random;
  for (int round = 0; round < 50; ++round) {
    const World world = make_world(random);
    FakeEngine engine(world, random);
    Jobs jobs;
    RowFeed mover(world.layout, engine, jobs, std::nullopt, kSmallWindow);
    for (int i = 0; i < 5; ++i) add_random_job(jobs, world, random, 300);
    std::uint64_t before = random.below(10);
    engine.after_arrival = [&] {
      if (before-- == 0) mover.cancel();
    };
    engine.run(mover);
    engine.after_arrival = nullptr;
    jobs.forget();
    mover.reset();
    add_random_job(jobs, world, random, 300);
    engine.run(mover);
    jobs.expect_all_right();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST(RowFeed, ResetForgetsARunThatThrewAndServesAgain) {
  Random random;
  for (int round = 0; round < 50; ++round) {
    const World world = make_world(random);
    FakeEngine engine(world, random);
    Jobs jobs;
    RowFeed mover(world.layout, engine, jobs, std::nullopt, kSmallWindow);
    jobs.add(world, {0}, world.layout.rows);
    for (int i = 0; i < 5; ++i) add_random_job(jobs, world, random, 300);
    engine.arrivals_before_failure = random.below(3);
    try {
      engine.run(mover);
    } catch (const Error&) {
    }
    engine.arrivals_before_failure.reset();
    jobs.forget();
    mover.reset();
    add_random_job(jobs, world, random, 300);
    engine.run(mover);
    jobs.expect_all_right();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST(RowFeed, MemoryGrowsWithTheStartsAndNotBeyondASixteenthOfTheBudget) {
  for (const std::uint64_t limit : {1_MiB, 16_MiB, 64_MiB, 10_GiB}) {
    EXPECT_LE(RowFeed::memory(limit, 0), limit / 16);
    EXPECT_EQ(RowFeed::memory(limit, 1000) - RowFeed::memory(limit, 0), 1000 * 16u);
  }
}

}  // namespace
}  // namespace evenkeel
