// Completions that are late, reordered, short or failed: each fault at each completion.
#include <gtest/gtest.h>

#include <iostream>

#include "base/fd.h"
#include "tests/counting_file.h"
#include "tests/fault_sweep.h"
#include "tests/faulty_queue.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kCompletionColumns = 8, kCompletionRows = 4'000;

std::vector<CompletionFault> completion_faults() {
  return {{.name = "EIO", .error = EIO, .harmless = false},
          {.name = "ENOMEM", .error = ENOMEM, .harmless = false},
          {.name = "ECANCELED", .error = ECANCELED, .harmless = false},
          {.name = "EINTR", .error = EINTR},
          {.name = "EAGAIN", .error = EAGAIN},
          {.name = "0 bytes", .at_most = 0, .harmless = false},
          {.name = "100 bytes", .at_most = 100, .harmless = false},
          {.name = "5000 bytes", .at_most = 5000},
          {.name = "4096 bytes", .at_most = 4096},
          {.name = "late", .late = true},
          {.name = "backwards", .backwards = true},
          {.name = "late and backwards", .late = true, .backwards = true},
          {.name = "late and EIO", .error = EIO, .late = true, .harmless = false},
          {.name = "late and 5000 bytes", .at_most = 5000, .late = true}};
}

class FaultyCompletions : public testing::TestWithParam<bool> {
 protected:
  FaultyCompletions() : folder_(disk_folder().value_or(std::filesystem::temp_directory_path())) {
    const Numbers numbers = counting(0, kCompletionRows * kCompletionColumns);
    path_ = folder_.write_through(
        "numbers", {reinterpret_cast<const char*>(numbers.data()), numbers.size() * 4});
    queue_wrapper = &FaultyQueue::wrap;
  }
  ~FaultyCompletions() override {
    queue_wrapper = nullptr;
    CompletionScript::armed = false;
  }

  static void gather(const Array& array) {
    std::vector<std::uint64_t> rows;
    for (std::uint64_t row = 7; row < kCompletionRows; row += 601) rows.push_back(row);
    ASSERT_EQ(gathered(array, rows), rows_of_counting(rows, kCompletionColumns));
  }
  static void scan(const Array& array) {
    int left = 3;
    for (const Chunk& chunk : array.chunks(600)) {
      ASSERT_TRUE(counts_on(chunk));
      if (--left == 0) break;
    }
  }
  void once(FaultScript& script, const CompletionFault& fault) const {
    CompletionScript::count = 0;
    const Budget budget(1_MiB);
    {
      FaultCase one(script, fault.harmless);
      const Array array =
          Array::open(path_, counted(kCompletionColumns, budget, EngineKind::kDirect));
      one.attempt([&] { gather(array); });
      one.attempt([&] { scan(array); });
      CompletionScript::armed = false;
      one.insist([&] { gather(array); });
      one.insist([&] { scan(array); });
    }
    EXPECT_EQ(budget.in_use(), 0u);
  }

  const TempFolder folder_;
  std::string path_;
};

TEST_P(FaultyCompletions, AtEveryCompletion) {
  FaultScript script;
  if (!GetParam()) script.forbid_rings();
  if (Array::open(path_, counted(kCompletionColumns, 1_MiB, EngineKind::kDirect)).engine().chosen !=
      EngineKind::kDirect) {
    GTEST_SKIP() << "no folder on a disk that takes O_DIRECT";
  }
  Watchdog watchdog;
  std::uint64_t cases = 0;
  once(script, {});
  const std::uint64_t completions = CompletionScript::count;
  ASSERT_GT(completions, 10u);
  for (const CompletionFault& fault : completion_faults()) {
    for (std::uint64_t ordinal = 0; ordinal < completions; ++ordinal) {
      for (const bool from_then_on : {false, true}) {
        if (from_then_on && ordinal > 1 && ordinal != completions / 2) continue;
        const std::string place = "completion " + std::to_string(ordinal) +
                                  (from_then_on ? " and on: " : ": ") + std::string(fault.name);
        watchdog.enter(place);
        SCOPED_TRACE(place);
        CompletionScript::fault = fault;
        if (from_then_on && fault.error == EINTR) continue;  // endless EINTR does not occur
        if (from_then_on && fault.error == EAGAIN && ordinal > 0) continue;  // takes a second
        if (from_then_on && fault.error == EAGAIN) CompletionScript::fault.harmless = false;
        CompletionScript::ordinal = ordinal;
        CompletionScript::from_then_on = from_then_on;
        CompletionScript::armed = true;
        once(script, CompletionScript::fault);
        ++cases;
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  std::cout << "faults: completions, " << (GetParam() ? "ring" : "threads") << ": " << cases
            << " cases\n";
}

INSTANTIATE_TEST_SUITE_P(Queues, FaultyCompletions, testing::Bool(), [](const auto& tested) {
  return std::string(tested.param ? "Ring" : "Threads");
});

}  // namespace
}  // namespace evenkeel
