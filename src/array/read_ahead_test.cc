// labels: threads reads
#include "array/read_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <set>
#include <vector>

#include "array/internal.h"
#include "evenkeel/error.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

constexpr std::size_t kAhead = 4, kAheadStreams = 2;
constexpr std::uint64_t kAheadRows = 1000, kAheadRowBytes = 512;

// Batch n has some rows of each stream from row n on; the streams read different numbers of rows.
class CountingMaker final : public BatchMaker {
 public:
  explicit CountingMaker(std::uint64_t refused = UINT64_MAX) : refused_(refused) {
    for (auto& slot : slots_) {
      for (Part& part : slot) part.memory.resize(kAheadRows * kAheadRowBytes);
    }
  }
  void begin(std::size_t, std::uint64_t number) override {
    if (number == refused_) throw Error(ErrorKind::kInvalid, "begin", "refused");
    const std::lock_guard lock(mutex_);
    begun_.insert(number);
  }
  Job& prepare(std::size_t slot, std::uint64_t number) override {
    return prepare_stream(slot, number, 0);
  }
  Job& prepare_stream(std::size_t slot, std::uint64_t number, std::size_t stream) override {
    const std::lock_guard lock(mutex_);
    prepared_unbegun_ = prepared_unbegun_ || !begun_.contains(number);
    Part& part = slots_[slot][stream];
    part.start = number;
    part.job = Job{};
    part.job.starts = {&part.start, 1};
    part.job.count = number % 3 == 0 ? 600 : 1;
    part.job.out = part.memory.data();
    return part.job;
  }
  void finish(std::size_t, std::uint64_t number) override {
    const std::lock_guard lock(mutex_);
    finished_.push_back(number);
  }

  bool prepared_unbegun() const { return prepared_unbegun_; }
  const std::vector<std::uint64_t>& finished() const { return finished_; }

 private:
  struct Part {
    std::uint64_t start = 0;
    Job job;
    std::vector<std::byte> memory;
  };
  const std::uint64_t refused_;
  std::mutex mutex_;
  std::set<std::uint64_t> begun_;
  bool prepared_unbegun_ = false;
  std::vector<std::uint64_t> finished_;
  std::array<std::array<Part, kAheadStreams>, kAhead> slots_;
};

class ReadAheadTest : public testing::Test {
 protected:
  std::vector<ReadStream> streams(std::size_t count) {
    return {count, ReadStream{Internals::of(array_).layout, *engine_}};
  }
  static std::uint64_t take(ReadAhead& ahead) {
    std::uint64_t taken = UINT64_MAX;
    ahead.take([&](std::size_t, std::uint64_t number) { taken = number; });
    ahead.give_back(taken);
    return taken;
  }

  TempFolder folder_;
  const Array array_ =
      Array::open(folder_.write("rows", std::string(kAheadRows* kAheadRowBytes, 'x')),
                  {.budget = 16_MiB,
                   .engine = EngineKind::kDirect,
                   .dtype = DType::of<std::uint8_t>(),
                   .shape = {-1, kAheadRowBytes}});
  const std::shared_ptr<Engine> engine_ = Internals::of(array_).engine();
};

TEST_F(ReadAheadTest, ABatchThatCouldNotBeBegunIsPreparedForNoStream) {
  for (int i = 0; i < 50; ++i) {
    CountingMaker maker(3);
    ReadAhead ahead(streams(kAheadStreams), maker,
                    {.slots = kAhead, .end = 20, .budget_limit = 1_MiB});
    EXPECT_THROW(
        {
          for (;;) take(ahead);
        },
        Error);
    ahead.close();
    ASSERT_FALSE(maker.prepared_unbegun());
  }
}

TEST_F(ReadAheadTest, BatchesAreFinishedInOrder) {
  CountingMaker maker;
  ReadAhead ahead(streams(1), maker,
                  {.slots = kAhead,
                   .end = 300,
                   .finish_on_own_thread = true,
                   .second_reads = true,
                   .budget_limit = 1_MiB});
  for (std::uint64_t number = 0; number < 300; ++number) ASSERT_EQ(take(ahead), number);
  ahead.close();
  EXPECT_TRUE(std::ranges::is_sorted(maker.finished()));
}

TEST_F(ReadAheadTest, ASeekFromAPositionThatHasChangedDoesNothing) {
  CountingMaker maker;
  ReadAhead ahead(streams(1), maker, {.slots = kAhead, .end = 5, .budget_limit = 1_MiB});
  while (ahead.position() < 5) take(ahead);
  ahead.seek(0, 5, {}, 5);
  EXPECT_EQ(take(ahead), 0u);
  ahead.seek(0, 5, {}, 5);  // like a second thread that saw the end
  EXPECT_EQ(take(ahead), 1u);
  ahead.seek(0, 5, {}, 2);
  EXPECT_EQ(take(ahead), 0u);
}

}  // namespace
}  // namespace evenkeel
