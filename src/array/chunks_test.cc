// labels: threads reads
#include "array/chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <ranges>
#include <set>
#include <utility>
#include <vector>

#include "array/internal.h"
#include "tests/counting_file.h"
#include "tests/forked.h"
#include "tests/sanitizers.h"
#include "tests/watchdog.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

static_assert(std::ranges::input_range<Chunks>);
static_assert(!std::ranges::forward_range<Chunks>);
static_assert(!std::is_copy_constructible_v<Chunks>);
static_assert(std::is_nothrow_move_constructible_v<Chunks>);

constexpr std::uint64_t kColumns = 8, kRowBytes = 32;

class ChunksTest : public testing::Test {
 protected:
  Array open(std::uint64_t rows, const Budget& budget, EngineKind engine = EngineKind::kAuto) {
    path_ = counting_file(folder_, "numbers", rows * kColumns);
    return Array::open(path_, counted(kColumns, budget, engine));
  }
  // The number of rows in a hint: "use chunks of at most 12,345 rows".
  static std::uint64_t number_in(const std::string& hint) {
    std::string digits;
    for (const char c : hint) {
      if (c >= '0' && c <= '9') digits += c;
    }
    return digits.empty() ? 0 : std::stoull(digits);
  }

  TempFolder folder_;
  std::string path_;
};

class EveryEngineChunks : public ChunksTest, public testing::WithParamInterface<EngineKind> {};
INSTANTIATE_TEST_SUITE_P(Engines, EveryEngineChunks, testing::ValuesIn(kAllEngines),
                         [](const auto& tested) { return std::string(engine_name(tested.param)); });

TEST_P(EveryEngineChunks, EveryPositionComesOnceAndInOrder) {
  const Array array = open(100'003, 2_MiB, GetParam());
  const Order blocks = block_shuffled(5, 1, {250, 16, 12});
  for (const Order& order :
       {sequential(), shuffled(5), random(5), shuffled(5).for_rank(2, 3),
        sequential().for_rank(1, 4), shuffled(5, 9), blocks, blocks.for_rank(2, 3)}) {
    const Sequence sequence(order, array.rows());
    Chunks chunks = array.chunks(1000, order);
    EXPECT_EQ(chunks.size(), (sequence.size() + 999) / 1000);
    std::uint64_t seen = 0, number = 0;
    for (const Chunk& chunk : chunks) {
      ASSERT_EQ(chunk.position(), seen);
      ASSERT_EQ(chunk.size(), ++number < chunks.size() ? 1000 : sequence.size() - seen);
      ASSERT_TRUE(follows(chunk, sequence)) << order.describe() << ", position " << seen;
      ASSERT_TRUE(counts_on(chunk)) << order.describe() << ", position " << seen;
      seen += chunk.size();
    }
    EXPECT_EQ(seen, sequence.size()) << order.describe();
    EXPECT_EQ(number, chunks.size());
  }
}

TEST_P(EveryEngineChunks, RanksTogetherSeeEveryRowOnce) {
  const Array array = open(10'007, 2_MiB, GetParam());
  std::vector<int> times(array.rows());
  for (std::uint64_t rank = 0; rank < 3; ++rank) {
    for (const Chunk& chunk : array.chunks(999, shuffled(1).for_rank(rank, 3))) {
      ASSERT_TRUE(counts_on(chunk));
      for (std::size_t i = 0; i < chunk.size(); ++i) ++times[chunk.index(i)];
    }
  }
  EXPECT_EQ(std::ranges::count(times, 1), static_cast<long>(array.rows()));
}

TEST_P(EveryEngineChunks, SeekGoesForwardsBackwardsAndToTheEnd) {
  const Array array = open(50'500, 2_MiB, GetParam());
  for (const Order& order : {sequential(), shuffled(2), block_shuffled(2, 0, {100, 32, 4})}) {
    Chunks chunks = array.chunks(1000, order);
    for (const std::uint64_t number : {40, 3, 3, 50, 0}) {
      chunks.seek(number);
      auto at = chunks.begin();
      for (std::uint64_t next = number; next < std::min<std::uint64_t>(number + 5, 51); ++next) {
        ASSERT_NE(at, chunks.end());
        ASSERT_EQ(at->position(), next * 1000);
        ASSERT_TRUE(counts_on(*at));
        ++at;
      }
    }
    chunks.seek(51);
    EXPECT_EQ(chunks.begin(), chunks.end());
    const Error error = error_of([&] { chunks.seek(52); });
    EXPECT_EQ(error.kind(), ErrorKind::kIndex);
    EXPECT_THAT(error.what(), HasSubstr("chunk 52 of 51"));
  }
}

TEST_P(EveryEngineChunks, ABrokenOffLoopGoesOnWhereItWas) {
  const Array array = open(50'000, 2_MiB, GetParam());
  Chunks chunks = array.chunks(1000, shuffled(1));
  for (const Chunk& chunk : chunks) {
    if (chunk.position() == 4000) break;
  }
  EXPECT_EQ(chunks.begin()->position(), 5000u);
}

TEST_P(EveryEngineChunks, DestroyingWhileChunksAreBeingReadIsClean) {
  const Budget budget(4_MiB);
  const Array array = open(150'000, budget, GetParam());
  const std::uint64_t before = budget.in_use();
  for (int round = 0; round < 30; ++round) {
    Chunks chunks = array.chunks(10'000, round % 2 ? shuffled(1) : sequential());
    auto at = chunks.begin();
    for (int i = 0; i < round % 4; ++i) ++at;
    ASSERT_TRUE(counts_on(*at));
  }
  EXPECT_EQ(budget.in_use(), before);
}

TEST_P(EveryEngineChunks, RangesThatWereNeverUsedAreClean) {
  const Array array = open(150'000, 4_MiB, GetParam());
  for (int round = 0; round < 10; ++round) array.chunks(10'000);
  EXPECT_EQ(array.chunks(10'000).size(), 15u);
}

TEST_P(EveryEngineChunks, SeveralRangesAtOnceDoNotDisturbEachOther) {
  const Array array = open(150'000, 4_MiB, GetParam());
  Chunks a = array.chunks(2000), b = array.chunks(2000, shuffled(1));
  auto at = a.begin();
  for (const Chunk& chunk : b) {
    ASSERT_TRUE(counts_on(chunk));
    ASSERT_TRUE(counts_on(*at));
    ++at;
  }
  EXPECT_EQ(at, a.end());
}

TEST_F(ChunksTest, OneChunkTheSizeOfTheBudgetsRestMeansNoReadingAhead) {
  const Array array = open(1'000'000, 8_MiB, EngineKind::kDirect);
  EXPECT_GT(array.chunks(10'000).buffers(), 1);
  Chunks large = array.chunks(array.budget().left() * 3 / 4 / kRowBytes);
  EXPECT_EQ(large.buffers(), 1);
  std::uint64_t rows = 0;
  for (const Chunk& chunk : large) rows += counts_on(chunk) ? chunk.size() : 0;
  EXPECT_EQ(rows, array.rows());
}

TEST_F(ChunksTest, BuffersNeverCrossTheBudget) {
  for (const std::uint64_t rows : {100, 3'000, 20'000, 40'000, 90'000}) {
    for (const Order& order : {sequential(), shuffled(1)}) {
      const Array array = open(300'000, 4_MiB, EngineKind::kRead);
      try {
        for (const Chunk& chunk : array.chunks(rows, order)) ASSERT_TRUE(counts_on(chunk));
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kBudget);
        EXPECT_EQ(rows, 90'000u);
      }
      EXPECT_LE(array.budget().peak(), 4_MiB);
    }
  }
}

TEST_P(EveryEngineChunks, AChunkThatIsTooLargeIsRefusedWithAHintThatWorks) {
  open(48_MiB / kRowBytes, 2_MiB);
  for (const std::uint64_t limit : {1_MiB, 2_MiB, 16_MiB}) {
    for (const Order& order : {sequential(), shuffled(1), sequential().for_rank(0, 2)}) {
      if (GetParam() == EngineKind::kMap && order == sequential()) continue;  // shown in place
      const Array array = Array::open(path_, counted(kColumns, limit, GetParam()));
      const Error error = error_of([&] { array.chunks(array.rows(), order); });
      ASSERT_EQ(error.kind(), ErrorKind::kBudget) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(with_commas(limit)));
      const std::uint64_t fitting = number_in(error.hint_text());
      ASSERT_GT(fitting, 0u) << error.what();
      EXPECT_TRUE(counts_on(*array.chunks(fitting, order).begin())) << error.what();
      // The hint is not much smaller than necessary.
      EXPECT_EQ(error_of([&] { array.chunks(fitting * 5 / 4, order); }).kind(), ErrorKind::kBudget)
          << error.what();
    }
  }
}

TEST_F(ChunksTest, AChunkOfNoRowsIsRefused) {
  const Array array = open(1000, 2_MiB);
  EXPECT_EQ(error_of([&] { array.chunks(0); }).kind(), ErrorKind::kInvalid);
}

TEST_F(ChunksTest, AChunkLargerThanTheArrayIsTheArray) {
  const Array array = open(1000, 2_MiB, EngineKind::kDirect);
  Chunks chunks = array.chunks(UINT64_MAX);
  EXPECT_EQ(chunks.size(), 1u);
  EXPECT_EQ(chunks.begin()->size(), 1000u);
}

TEST_F(ChunksTest, AnotherTypeThanTheArraysIsRefusedByName) {
  const Array array = open(1000, 2_MiB);
  Chunks chunks = array.chunks(10);
  const Error error = error_of([&] { chunks.begin()->rows<double>(); });
  EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
  EXPECT_THAT(error.what(), HasSubstr("float64"));
}

TEST_P(EveryEngineChunks, AMovedRangeGoesOn) {
  const Array array = open(50'000, 2_MiB, GetParam());
  Chunks first = array.chunks(1000);
  EXPECT_TRUE(counts_on(*first.begin()));
  Chunks second = std::move(first);
  EXPECT_EQ(second.begin()->position(), 1000u);
  second = array.chunks(2000);
  EXPECT_EQ(second.begin()->position(), 0u);
  EXPECT_EQ(second.begin()->size(), 2000u);
}

Chunks::Impl& impl_of(const Chunks& chunks) { return Internals::of(chunks); }

// Returns the next chunk and its row numbers, waiting with short deadlines. False after the last.
bool lend(Chunks& chunks, Loan& loan, Chunk& chunk, std::vector<std::uint64_t>& numbers) {
  for (;;) {
    const auto deadline = ReadAhead::Clock::now() + std::chrono::milliseconds(1);
    const auto use = [&](const Chunk& read) {
      chunk = read;
      numbers.resize(read.size());
      for (std::size_t i = 0; i < read.size(); ++i) numbers[i] = read.index(i);
    };
    const ReadAhead::Outcome outcome = impl_of(chunks).lend(use, loan, deadline);
    if (outcome != ReadAhead::Outcome::kTimeout) return outcome == ReadAhead::Outcome::kTaken;
  }
}

bool holds(const Chunk& chunk, const std::vector<std::uint64_t>& numbers) {
  const auto rows = chunk.rows<std::uint32_t>();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (rows[i][0] != numbers[i] * kColumns) return false;
  }
  return true;
}

// Holds the memory of the last chunk and of the one before it, like a loop that releases chunks.
TEST_P(EveryEngineChunks, LentMemoryThatComesBackIsUsedAgain) {
  const Budget budget(8_MiB);
  const Array array = open(400'003, budget, GetParam());
  for (const Order& order : {sequential(), shuffled(3)}) {
    Chunks chunks = array.chunks(20'000, order);
    if (impl_of(chunks).in_place()) continue;
    const std::uint64_t paid = budget.in_use();
    Loan held, loan;
    std::set<const std::byte*> places;
    Chunk chunk;
    std::vector<std::uint64_t> numbers;
    std::uint64_t rows = 0;
    while (lend(chunks, loan, chunk, numbers)) {
      places.insert(loan.data());
      ASSERT_TRUE(holds(chunk, numbers)) << order.describe() << ", position " << chunk.position();
      rows += chunk.size();
      held = std::move(loan);
    }
    EXPECT_EQ(rows, array.rows());
    EXPECT_LE(places.size(), static_cast<std::size_t>(chunks.buffers()) + 1);
    EXPECT_EQ(budget.in_use(), paid);
  }
}

TEST_P(EveryEngineChunks, LentMemoryThatIsKeptIsReplacedAndStaysAsItIs) {
  const Array array = open(400'003, 8_MiB, GetParam());
  Chunks chunks = array.chunks(20'000, shuffled(3));
  struct Kept {
    Loan loan;
    Chunk chunk;
    std::vector<std::uint64_t> numbers;
  };
  std::vector<Kept> kept(21);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    ASSERT_TRUE(lend(chunks, kept[i].loan, kept[i].chunk, kept[i].numbers));
    if (i == 6) chunks.seek(7);  // its current position
  }
  Kept none;
  EXPECT_FALSE(lend(chunks, none.loan, none.chunk, none.numbers));
  const Sequence sequence(shuffled(3), array.rows());
  for (const Kept& one : kept) {
    std::vector<std::uint64_t> rows(one.numbers.size());
    sequence.fill(one.chunk.position(), rows);
    ASSERT_EQ(one.numbers, rows);
    ASSERT_TRUE(holds(one.chunk, one.numbers));
  }
}

TEST_P(EveryEngineChunks, LentWithOneBufferTheyAreTheSame) {
  const Array array = open(200'000, 4_MiB, GetParam());
  Chunks chunks = array.chunks(60'000);
  Loan loan;
  Chunk chunk;
  std::vector<std::uint64_t> numbers;
  std::uint64_t rows = 0;
  while (lend(chunks, loan, chunk, numbers)) {
    ASSERT_TRUE(counts_on(chunk));
    rows += chunk.size();
    loan = {};
  }
  EXPECT_EQ(rows, array.rows());
}

TEST_P(EveryEngineChunks, AClosedRangeThrows) {
  const Array array = open(200'000, 4_MiB, GetParam());
  Chunks chunks = array.chunks(1000, shuffled(1));
  EXPECT_NE(chunks.begin()->size(), 0u);
  EXPECT_TRUE(impl_of(chunks).close());
  const Error error = error_of([&] { chunks.begin(); });
  EXPECT_EQ(error.kind(), ErrorKind::kClosed);
}

// Chunks that were handed out are right. The error comes before any row that is gone, and it stays.
TEST_P(EveryEngineChunks, AFileTruncatedMeanwhileIsAnErrorAtTheChunkThatNeedsIt) {
  const std::uint64_t rows = 300'000, kept = 200'000;
  const Array array = open(rows, 2_MiB, GetParam());
  Chunks chunks = array.chunks(2000);
  std::uint64_t whole = 0;
  const Error error = error_of([&] {
    for (const Chunk& chunk : chunks) {
      ASSERT_TRUE(counts_on(chunk));
      whole = chunk.position() + chunk.size();
      if (chunk.position() == 20'000) {
        ASSERT_EQ(::truncate(path_.c_str(), kept * kRowBytes), 0);
      }
    }
  });
  EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
  EXPECT_EQ(error.path(), path_);
  EXPECT_GE(whole, 22'000u);
  EXPECT_LE(whole, kept);
  EXPECT_EQ(error_of([&] { chunks.begin(); }).kind(), ErrorKind::kFormat);
}

TEST_P(EveryEngineChunks, ReadingGoesOnElsewhereAfterAnError) {
  std::vector<std::string> paths;
  for (std::uint64_t i = 0; i < 3; ++i) {
    paths.push_back(counting_file(folder_, "part" + std::to_string(i), 100'000 * kColumns,
                                  i * 100'000 * kColumns));
  }
  const Array array = Array::open(paths, counted(kColumns, 2_MiB, GetParam()));
  ASSERT_EQ(::truncate(paths[1].c_str(), 1000), 0);
  Chunks chunks = array.chunks(2000);
  const Error error = error_of([&] {
    for (const Chunk& chunk : chunks) ASSERT_TRUE(counts_on(chunk));
  });
  EXPECT_EQ(error.path(), paths[1]) << error.what();
  chunks.seek(100);  // the first chunk of the third file
  EXPECT_EQ(chunks.begin()->position(), 200'000u);
  EXPECT_TRUE(counts_on(*chunks.begin()));
}

// Batch `number` is row `number`, in the memory of its slot.
struct RowMaker final : BatchMaker {
  Job& prepare(std::size_t slot, std::uint64_t number) override {
    if (fails) throw Error(ErrorKind::kSystem, "test", "it fails");
    Slot& one = slots[slot];
    one.start = number;
    one.job = Job{};
    one.job.starts = std::span(&one.start, 1);
    one.job.out = one.row.data();
    return one.job;
  }
  struct Slot {
    std::uint64_t start = 0;
    Job job;
    std::array<std::byte, kRowBytes> row;
  };
  std::atomic<bool> fails = false;
  std::array<Slot, 2> slots;
};

// A slot that a failed read leaves empty is filled by the next read.
TEST_F(ChunksTest, ABatchWhoseReadFailedOnTheCallersThreadIsReadByTheThreadsLater) {
  const Array array = open(100, 2_MiB, EngineKind::kRead);
  const std::shared_ptr<Engine> engine = Internals::of(array).engine();
  RowMaker maker;
  ReadAhead ahead(Internals::of(array).layout, *engine, maker, {.slots = 1, .end = 100});
  std::optional<std::uint64_t> taken;
  const auto use = [&](std::size_t, std::uint64_t number) { taken = number; };
  maker.fails = true;
  EXPECT_THROW(ahead.take(use), Error);
  maker.fails = false;
  Watchdog watchdog;
  watchdog.enter("a batch after a failed read");
  while (!taken) ahead.take(use, ReadAhead::Clock::now() + std::chrono::milliseconds(5));
  EXPECT_EQ(taken, 0u);
}

// Rows read ahead into two buffers of a pool, of which the first is lent.
struct LentRow {
  explicit LentRow(Array rows) : array(std::move(rows)) {
    for (int slot = 0; slot < 2; ++slot) {
      pool->add_slot(array.budget().reserve(pool->slot_bytes(), "rows"));
    }
    pool->allocate();
    pool->serve(ahead);
    ahead->take([&](std::size_t slot, std::uint64_t number) { loan = pool->lend(slot, number); });
    EXPECT_NE(loan.data(), nullptr);  // a loan without memory does not come back to the reader
  }

  const Array array;
  const std::shared_ptr<Engine> engine = Internals::of(array).engine();
  RowMaker maker;
  const std::shared_ptr<ReadAhead> ahead = std::make_shared<ReadAhead>(
      Internals::of(array).layout, *engine, maker, ReadAhead::Options{.slots = 2, .end = 100});
  const std::shared_ptr<LendingPool> pool = std::make_shared<LendingPool>(kRowBytes, "rows");
  Loan loan;
};

// The child is forked while the reader's mutex is held, as another thread of the parent may hold
// it.
TEST_F(ChunksTest, ALoanThatEndsInAChildOfForkWaitsForNobody) {
  if (kUnderTsan || kUnderAsan) GTEST_SKIP() << "sanitizers do not support fork with threads";
  LentRow lent(open(100, 2_MiB, EngineKind::kRead));
  std::string said;
  lent.ahead->take([&](std::size_t, std::uint64_t) {
    said = in_child([&] {
      ::alarm(30);
      lent.loan = {};
      return std::string("ended");
    });
  });
  EXPECT_EQ(said, "ended");
}

// A loan that ends while its pool is closed must have left the reader when `close` returns: what
// the reader uses is destroyed then. Here it ends while the reader's mutex is held, so it waits.
TEST_F(ChunksTest, AClosedPoolHasNobodyInItsReader) {
  LentRow lent(open(100, 2_MiB, EngineKind::kRead));
  std::thread ending, closing;
  std::atomic<long> owners = 0;  // of the reader, after `close` has returned
  lent.ahead->take([&](std::size_t, std::uint64_t) {
    ending = std::thread([&] { lent.loan = {}; });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (lent.ahead.use_count() < 2 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    closing = std::thread([&] {
      lent.pool->close();
      owners = lent.ahead.use_count();
    });
    for (int i = 0; i < 20 && owners == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  ending.join();
  closing.join();
  EXPECT_EQ(owners, 1);
}

}  // namespace
}  // namespace evenkeel
