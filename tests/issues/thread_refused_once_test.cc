// If a reading thread could not be started for the first batch, but for the second, the loader read
// from the beginning again, into slots that were never returned, and hung.
#include <gtest/gtest.h>

#include <atomic>
#include <new>

#include "base/fault_hook.h"
#include "evenkeel/tokens.h"
#include "format/token_test_files.h"
#include "tests/counting_file.h"
#include "tests/fault_script.h"
#include "tests/watchdog.h"

namespace evenkeel {
namespace {

void expect_right(const TokenLoader& loader, const Batch& batch) {
  const auto origins = loader.explain(batch.step());
  const auto x = batch.x<std::int64_t>();
  for (std::size_t row = 0; row < x.size(); ++row) {
    for (std::size_t j = 0; j < x.columns(); ++j) {
      ASSERT_EQ(x[row][j], static_cast<std::int64_t>((origins[row].start + j) % 65536));
    }
  }
}

TEST(ThreadRefusedOnce, BatchesGoOnInOrder) {
  const TempFolder folder;
  const std::string path = folder.write("tokens.bin", counting<std::uint16_t>(0, 100'000));
  Watchdog watchdog;
  for (std::uint32_t keep : {0u, 2u}) {
    for (std::uint64_t refused = 0; refused < 4; ++refused) {  // which of the threads
      watchdog.enter("keep " + std::to_string(keep) + ", thread " + std::to_string(refused));
      const Tokens tokens = Tokens::open(path, {.budget = 4_MiB, .engine = EngineKind::kRead});
      FaultScript script;
      TokenLoader loader(
          tokens, {.batch_size = 3, .block_size = 16, .prefetch = 2, .buffers = {.keep = keep}});
      script.spoil(sys::Call::kThreadStart, refused, {.error = EAGAIN});
      std::vector<Batch> held;
      for (std::uint64_t step = 0; step < 40; ++step) {
        const Batch* batch = loader.next();
        ASSERT_NE(batch, nullptr);
        EXPECT_EQ(batch->step(), step);
        held.push_back(*batch);
        if (held.size() > 1 + keep) held.erase(held.begin());
        for (const Batch& one : held) expect_right(loader, one);
      }
      loader.seek(7);
      expect_right(loader, *loader.next());
    }
  }
}

// The window reader of the order `blocks` was stopped and not started again.
TEST(ThreadRefusedOnce, BlocksGoOnInOrder) {
  const TempFolder folder;
  const std::string path = folder.write("tokens.bin", counting<std::uint16_t>(0, 100'000));
  Watchdog watchdog;
  for (std::uint64_t refused = 0; refused < 5; ++refused) {
    for (const bool from_then_on : {false, true}) {
      watchdog.enter("thread " + std::to_string(refused) + (from_then_on ? " and all later" : ""));
      const Tokens tokens = Tokens::open(path, {.budget = 4_MiB, .engine = EngineKind::kRead});
      FaultScript script;
      TokenLoader loader(tokens, {.batch_size = 30,
                                  .block_size = 16,
                                  .order = CropOrder::kBlocks,
                                  .blocks = {8, 16, 4},
                                  .prefetch = 2});
      script.spoil(sys::Call::kThreadStart, refused, {.error = EAGAIN}, from_then_on);
      for (std::uint64_t step = 0; step < 40; ++step) {
        const Batch* batch = loader.next();
        ASSERT_NE(batch, nullptr);
        EXPECT_EQ(batch->step(), step);
        expect_right(loader, *batch);
      }
      EXPECT_TRUE(script.reached() || refused > 1);
      loader.seek(7);
      expect_right(loader, *loader.next());
    }
  }
}

// Allows this many threads to start; starting the next one throws std::bad_alloc.
class NoMemoryForOneThread final : public sys::FaultHook {
 public:
  explicit NoMemoryForOneThread(int allowed) : left_(allowed) { sys::fault_hook = this; }
  ~NoMemoryForOneThread() { sys::fault_hook = nullptr; }
  NoMemoryForOneThread(const NoMemoryForOneThread&) = delete;
  NoMemoryForOneThread& operator=(const NoMemoryForOneThread&) = delete;
  sys::Fault on(sys::Call call) override {
    if (call == sys::Call::kThreadStart && left_-- == 0) throw std::bad_alloc();
    return {};
  }

 private:
  std::atomic<int> left_;
};

// The first `next` threw std::bad_alloc, and the second continued with only one of the threads.
TEST(ThreadRefusedOnce, BatchesGoOnInOrderWithoutMemoryForIt) {
  const TempFolder folder;
  const std::string path = folder.write("tokens.bin", counting<std::uint16_t>(0, 100'000));
  Watchdog watchdog;
  for (int refused = 0; refused < 3; ++refused) {
    watchdog.enter("thread " + std::to_string(refused));
    const Tokens tokens = Tokens::open(path, {.budget = 4_MiB, .engine = EngineKind::kRead});
    const NoMemoryForOneThread hook(refused);
    TokenLoader loader(tokens, {.batch_size = 3, .block_size = 16, .prefetch = 2});
    for (std::uint64_t step = 0; step < 40; ++step) {
      const Batch* batch = loader.next();
      ASSERT_NE(batch, nullptr);
      EXPECT_EQ(batch->step(), step);
      expect_right(loader, *batch);
    }
  }
}

TEST(ThreadRefusedOnce, ChunksGoOnInOrder) {
  const TempFolder folder;
  const std::string path = counting_file(folder, "numbers", 80'000);
  Watchdog watchdog;
  const Array array = Array::open(path, counted(8, 4_MiB, EngineKind::kRead));
  FaultScript script;
  script.spoil(sys::Call::kThreadStart, 0, {.error = EAGAIN});
  std::uint64_t rows = 0;
  for (const Chunk& chunk : array.chunks(100)) {
    ASSERT_TRUE(counts_on(chunk));
    rows += chunk.size();
  }
  EXPECT_EQ(rows, 10'000u);
  EXPECT_TRUE(script.reached());
}

}  // namespace
}  // namespace evenkeel
