// labels: threads reads
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "format/token_test_files.h"
#include "loader/test_closing.h"
#include "tests/forked.h"
#include "tests/sanitizers.h"
#include "tokens/loader.h"
#include "tokens/test_loader.h"

namespace evenkeel {
namespace {

class TokenLoaderThreads : public TokenLoaderTest {};

TEST_F(TokenLoaderThreads, ClosedItThrows) {
  const Budget budget(16_MiB);
  const Tokens stream = Tokens::open(folder_.write("tokens.bin", counting(0, 20'000)),
                                     {.budget = budget, .engine = EngineKind::kDirect});
  const std::uint64_t before = budget.in_use();
  {
    TokenLoader loader(stream, {.batch_size = 4, .block_size = 16});
    loader.next();
    loader.close();
    loader.close();
    EXPECT_THROW(loader.next(), Error);
    EXPECT_THROW(loader.seek(0), Error);
  }
  EXPECT_EQ(budget.in_use(), before);
}

// Memory is reserved for batches that fit, and nothing for the first that does not.
TEST_F(TokenLoaderThreads, ABatchThatDoesNotFitTakesNothing) {
  const Budget budget(4_MiB);
  const Tokens stream = Tokens::open(folder_.write("tokens.bin", counting(0, 20'000)),
                                     {.budget = budget, .engine = EngineKind::kRead});
  const auto made = [&](std::uint32_t prefetch) {
    const TokenLoader loader(stream, {.batch_size = 16, .block_size = 1024, .prefetch = prefetch});
    return std::pair(budget.in_use(), static_cast<std::uint64_t>(loader.buffers()));
  };
  const std::uint64_t each = made(2).first - made(1).first;
  std::set<std::uint64_t> besides;
  for (int i = 0; i < 16; ++i) {
    const std::uint64_t others = static_cast<std::uint64_t>(i) * each / 16;
    const Reservation elsewhere = budget.reserve(others, "something else");
    const auto [in_use, buffers] = made(1000);
    ASSERT_GT(buffers, 2u);
    besides.insert(in_use - others - buffers * each);
  }
  EXPECT_EQ(besides.size(), 1u);
}

TEST_F(TokenLoaderThreads, ClosingWhileAnotherThreadTakesBatches) {
  const Tokens stream = tokens(200'000, EngineKind::kRead);
  for (int i = 0; i < 20; ++i) {
    TokenLoader loader(stream, {.batch_size = 16, .block_size = 256});
    expect_closing_ends_next(loader);
  }
}

// In order kBlocks, if rows are made of documents, one thread reads windows of tokens and another
// reads their loss masks.
TEST_F(TokenLoaderThreads, WindowsOfDocumentsGiveTheRowsOfMappedTokens) {
  std::vector<std::uint64_t> ends;
  for (std::uint64_t end = 0; end < 60'000; ends.push_back(end)) end += 1 + end % 97;
  const std::string path = folder_.write("d.ds", counting(0, ends.back()));
  folder_.write("d.ds.index", le_all<std::uint64_t>(ends));
  std::string numbers(ends.back(), '\1');
  for (std::size_t i = 0; i < numbers.size(); i += 3) numbers[i] = '\0';
  folder_.write("mask.bin", numbers);
  const auto open = [&](DocumentMode mode, EngineKind engine) {
    const Tokens stream = Tokens::open(path, {.budget = 16_MiB, .engine = engine});
    const Tokens mask =
        Tokens::open(folder_.path("mask.bin"),
                     {.budget = 16_MiB, .engine = engine, .dtype = DType::of<std::uint8_t>()});
    LoaderOptions options{.batch_size = 4, .block_size = 64, .order = CropOrder::kBlocks};
    options.documents = {.mode = mode, .window = 16, .mixed_windows = 2};
    if (mode == DocumentMode::kStart) options.blocks = {2, 16, 4};
    return TokenLoader({{stream, 1, mask}}, options);
  };
  for (const DocumentMode mode :
       {DocumentMode::kStart, DocumentMode::kPacked, DocumentMode::kWhole}) {
    TokenLoader mapped = open(mode, EngineKind::kAuto), read = open(mode, EngineKind::kDirect);
    for (const std::uint64_t from : {0, 300, 20}) {
      mapped.seek(from);
      read.seek(from);
      for (int i = 0; i < 40; ++i) {
        const Batch &expected = *mapped.next(), &batch = *read.next();
        ASSERT_EQ(values(batch.x<std::int64_t>()), values(expected.x<std::int64_t>()));
        ASSERT_EQ(values(batch.y<std::int64_t>()), values(expected.y<std::int64_t>()));
        const auto mask = batch.loss_mask().flat(), same = expected.loss_mask().flat();
        ASSERT_TRUE(std::ranges::equal(mask, same));
      }
    }
    TokenLoader closing = open(mode, EngineKind::kDirect);
    expect_closing_ends_next(closing);
  }
}

// Documents of other ranks that lie between those of a rank take no memory.
TEST_F(TokenLoaderThreads, AWindowOfDocumentsTakesTheMemoryOfARanksOwn) {
  std::vector<std::uint64_t> ends;
  for (std::uint64_t end = 0; ends.size() < 4096; ends.push_back(end)) end += 200 + end % 97;
  const std::string path = folder_.write("d.ds", counting(0, ends.back()));
  folder_.write("d.ds.index", le_all<std::uint64_t>(ends));
  for (const DocumentMode mode : {DocumentMode::kPacked, DocumentMode::kWhole}) {
    const auto used = [&](std::uint64_t world) {
      const Budget budget(32_MiB);
      const Tokens stream = Tokens::open(path, {.budget = budget, .engine = EngineKind::kDirect});
      LoaderOptions options{.batch_size = 4, .block_size = 256, .order = CropOrder::kBlocks};
      options.world = world;
      options.documents = {.mode = mode, .window = 2048, .mixed_windows = 3};
      if (mode == DocumentMode::kPacked) options.documents.window = 512;
      TokenLoader loader(stream, options);
      for (std::uint64_t i = 0; i < 4096 / 4 / world; ++i) loader.next();
      return budget.in_use() - budget.cached();
    };
    // Two windows of 2,048 documents, or of 3 x 512 rows, are 2 or 1.5 MiB.
    EXPECT_LT(used(4) + 900'000, used(1)) << document_mode_name(mode);
  }
}

// Several threads take batches from one loader, and each batch is taken once.
TEST_F(TokenLoaderThreads, EachBatchIsLentOnce) {
  const Tokens stream = tokens(200'000, EngineKind::kRead);
  TokenLoader::Impl loader({{stream, 1}}, {.batch_size = 4, .block_size = 64, .steps = 600}, true);
  std::mutex mutex;
  std::vector<std::uint64_t> steps;
  const auto take_all = [&] {
    for (;;) {
      TokenLoader::Impl::Lent lent;
      const auto outcome =
          loader.lend(lent, ReadAhead::Clock::now() + std::chrono::milliseconds(10));
      if (outcome == ReadAhead::Outcome::kEnd) return;
      if (outcome == ReadAhead::Outcome::kTimeout) continue;
      const auto origins = loader.explain(lent.batch.step());
      for (std::size_t i = 0; i < origins.size(); ++i) {
        expect_crop(lent.batch.x<std::int64_t>()[i], lent.batch.y<std::int64_t>()[i],
                    origins[i].start);
      }
      const std::lock_guard lock(mutex);
      steps.push_back(lent.batch.step());
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(take_all);
  for (std::thread& thread : threads) thread.join();
  std::ranges::sort(steps);
  ASSERT_EQ(steps.size(), 600u);
  for (std::uint64_t i = 0; i < steps.size(); ++i) ASSERT_EQ(steps[i], i);
}

TEST_F(TokenLoaderThreads, FewerBuffersWhereTheBudgetIsSmall) {
  const std::string path = folder_.write("small.bin", counting(0, 3'000'000));
  const Tokens stream = Tokens::open(path, {.budget = 4_MiB});
  TokenLoader loader(stream, {.batch_size = 32, .block_size = 1024, .prefetch = 100});
  EXPECT_GE(loader.buffers(), 1);
  EXPECT_LT(loader.buffers(), 10);
  expect_as_explained(loader);
  EXPECT_LE(stream.budget().peak(), 4_MiB);
  try {
    TokenLoader(stream, {.batch_size = 1024, .block_size = 1024});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBudget);
  }
}

// The tokens fit the budget, but not beside the batches.
TEST_F(TokenLoaderThreads, TokensAreReadIfTheirMappingLeavesTooLittleForBatches) {
  const std::string path = folder_.write("mapped.bin", counting(0, 6'500'000));
  for (const CropOrder order : {CropOrder::kRandom, CropOrder::kShuffled, CropOrder::kBlocks}) {
    const Tokens stream = Tokens::open(path, {.budget = 16_MiB});
    ASSERT_EQ(stream.engine().chosen, EngineKind::kMap);
    TokenLoader loader(stream, {.batch_size = 128, .block_size = 1024, .order = order});
    EXPECT_NE(stream.engine().chosen, EngineKind::kMap);
    expect_as_explained(loader);
    EXPECT_LE(stream.budget().peak(), 16_MiB);
    EXPECT_THROW(TokenLoader(stream, {.batch_size = 1024, .block_size = 1024, .order = order}),
                 Error);
  }
}

TEST_F(TokenLoaderThreads, ErrorsOfTheReadingThreadArriveAtNext) {
  const std::string path = folder_.write("cut.bin", counting(0, 2'000'000));
  const Tokens stream = Tokens::open(path, {.budget = 8_MiB, .engine = EngineKind::kDirect});
  TokenLoader loader(stream, {.batch_size = 16, .block_size = 256, .prefetch = 2});
  loader.next();
  std::filesystem::resize_file(path, 4096);
  try {
    for (int i = 0; i < 1000; ++i) loader.next();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.path(), path);
    EXPECT_TRUE(error.offset().has_value()) << error.what();
  }
  EXPECT_THROW(loader.next(), Error);  // the error stays until the loader is moved
}

// The file was just written, so it is cached, and it is larger than the budget: the finishing
// thread reads, too.
TEST_F(TokenLoaderThreads, CachedBatchesAreTheSameHoweverManyThreadsReadThem) {
  const Tokens stream = tokens(12'000'000, EngineKind::kAuto);
  TokenLoader loader(stream, {.batch_size = 16, .block_size = 256, .prefetch = 6});
  for (int i = 0; i < 400; ++i) expect_as_explained(loader);
  loader.seek(100'000);
  for (int i = 0; i < 400; ++i) expect_as_explained(loader);
}

TEST_F(TokenLoaderThreads, ACachedFileThatIsCutArrivesAsAnErrorWhoeverReadsIt) {
  const Tokens stream = tokens(12'000'000, EngineKind::kAuto);
  TokenLoader loader(stream, {.batch_size = 16, .block_size = 256, .prefetch = 6});
  for (int i = 0; i < 100; ++i) expect_as_explained(loader);
  std::filesystem::resize_file(folder_.path("tokens.bin"), 4096);
  EXPECT_THROW(
      {
        for (int i = 0; i < 1000; ++i) expect_as_explained(loader);
      },
      Error);
  EXPECT_THROW(loader.next(), Error);
}

TEST_F(TokenLoaderThreads, InAChildOfForkTheLoaderIsClosedAndTheTokensAreNot) {
  if (kUnderTsan || kUnderAsan) GTEST_SKIP() << "sanitizers do not support fork with threads";
  const Tokens stream = tokens(50'000);
  TokenLoader loader(stream, {.batch_size = 4, .block_size = 64});
  loader.next();
  const auto kind_of = [](auto call) {
    try {
      call();
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::kInvalid;
  };
  EXPECT_EQ(in_child([&] {
              std::vector<std::int64_t> x(100), y(100);
              stream.xy(std::vector<std::uint64_t>{7}, 100, std::span(x), std::span(y));
              const bool right = x[0] == 7 && y[99] == 107;
              const bool closed = kind_of([&] { loader.next(); }) == ErrorKind::kClosed &&
                                  kind_of([&] { loader.seek(0); }) == ErrorKind::kClosed &&
                                  kind_of([&] { loader.step(); }) == ErrorKind::kClosed;
              { const TokenLoader gone(std::move(loader)); }  // does not wait for threads
              TokenLoader own(stream, {.batch_size = 4, .block_size = 64});
              return std::string(right && closed && own.next() ? "well" : "not so");
            }),
            "well");
  expect_as_explained(loader);
}

}  // namespace
}  // namespace evenkeel
