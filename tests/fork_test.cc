// A child of fork can use the array, whatever the parent's threads were doing.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "evenkeel/metrics.h"
#include "tests/counting_file.h"
#include "tests/sanitizers.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kForkColumns = 8, kForkRows = 200'000;

class ForkTest : public testing::Test {
 protected:
  void SetUp() override {
    if (kUnderTsan) GTEST_SKIP() << "ThreadSanitizer ends children that start threads after fork";
  }
  Array open(EngineKind engine) const {
    return Array::open(counting_file(folder_, "numbers", kForkRows * kForkColumns),
                       counted(kForkColumns, 4_MiB, engine));
  }

  // Runs `work` in a child. Returns "right", or what went wrong. SIGALRM ends a child that hangs.
  template <class Work>
  static std::string in_a_child(Work work) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      int code = 1;
      try {
        code = work() ? 0 : 2;
      } catch (...) {
      }
      ::_exit(code);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) {
      return WTERMSIG(status) == SIGALRM ? "hangs" : "signal " + std::to_string(WTERMSIG(status));
    }
    if (WEXITSTATUS(status) == 2) return "wrong data";
    return WEXITSTATUS(status) == 0 ? "right" : "exit " + std::to_string(WEXITSTATUS(status));
  }

  // The metrics read the list of open objects, whose lock is held across fork.
  static bool metrics_are_whole() { return metrics_text().ends_with("# EOF\n"); }

  static bool gather_is_right(const Array& array) {
    std::vector<std::uint64_t> rows;
    for (std::uint64_t row = 1; row < kForkRows; row += kForkRows / 400) rows.push_back(row);
    return gathered(array, rows) == rows_of_counting(rows, kForkColumns);
  }
  static bool chunks_are_right(const Array& array, const Order& order) {
    std::uint64_t rows = 0;
    for (const Chunk& chunk : array.chunks(5000, order)) {
      if (!counts_on(chunk)) return false;
      rows += chunk.size();
    }
    return rows == kForkRows;
  }

  TempFolder folder_;
};

class Fork : public ForkTest, public testing::WithParamInterface<EngineKind> {};

// Forks while another thread reads.
class ForkMeanwhile : public Fork {
 protected:
  void SetUp() override {
    Fork::SetUp();
    if (kUnderAsan)
      GTEST_SKIP() << "AddressSanitizer's allocator may be locked by another thread at fork";
  }
};

TEST_P(Fork, AChildReadsWhatTheParentReads) {
  const Array array = open(GetParam());
  EXPECT_TRUE(gather_is_right(array));
  EXPECT_EQ(in_a_child([&] {
              return gather_is_right(array) && chunks_are_right(array, sequential()) &&
                     chunks_are_right(array, shuffled(1));
            }),
            "right");
  EXPECT_TRUE(gather_is_right(array));
}

TEST_P(ForkMeanwhile, ParentAndChildReadAtTheSameTime) {
  const Array array = open(GetParam());
  std::thread forking([&] {
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(in_a_child([&] { return chunks_are_right(array, shuffled(2)); }), "right");
    }
  });
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(chunks_are_right(array, shuffled(1)));
  forking.join();
}

TEST_P(ForkMeanwhile, ManyForksWhileChunksAndAGatherAreUnderWay) {
  const Array array = open(GetParam());
  std::atomic<bool> stop = false;
  std::thread gathering([&] {
    while (!stop) EXPECT_TRUE(gather_is_right(array) && metrics_are_whole());
  });
  Chunks chunks = array.chunks(2000, shuffled(3));
  auto at = chunks.begin();
  for (int i = 0; i < 40; ++i, ++at) {
    EXPECT_EQ(in_a_child([&] { return gather_is_right(array) && metrics_are_whole(); }), "right")
        << "fork " << i;
    EXPECT_TRUE(counts_on(*at));
    if (HasFailure()) break;  // a child that hangs takes 20 seconds
  }
  stop = true;
  gathering.join();
}

TEST_P(Fork, ChunksMadeBeforeAreClosedInTheChild) {
  const Array array = open(GetParam());
  Chunks chunks = array.chunks(2000, shuffled(3));
  auto at = chunks.begin();
  EXPECT_EQ(in_a_child([&] {
              return error_of([&] { ++at; }).kind() == ErrorKind::kClosed &&
                     error_of([&] { chunks.begin(); }).kind() == ErrorKind::kClosed &&
                     error_of([&] { chunks.seek(0); }).kind() == ErrorKind::kClosed;
            }),
            "right");
  EXPECT_TRUE(counts_on(*++at));
}

// The child has no reading thread, and the parent's may have been waiting during fork.
TEST_P(Fork, ChunksMadeBeforeMayBeDestroyedInTheChild) {
  for (int round = 0; round < 10; ++round) {
    std::optional<Array> array(open(GetParam()));
    std::optional<Chunks> chunks(array->chunks(2000, shuffled(3)));
    auto at = chunks->begin();
    for (int i = 0; i < round % 4; ++i) ++at;
    if (round % 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_EQ(in_a_child([&] {
                chunks.reset();
                const bool right = gather_is_right(*array);
                array.reset();
                return right;
              }),
              "right");
    ASSERT_TRUE(counts_on(*++at));
  }
}

TEST_P(Fork, AChildThatExitsWithoutClosingIsClean) {
  std::fflush(nullptr);  // otherwise exit in the child prints buffered output again
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    static const Array array = open(GetParam());  // destroyed by exit
    static Chunks chunks = array.chunks(2000, shuffled(3));
    const bool right = gather_is_right(array) && counts_on(*chunks.begin());
    std::exit(right ? 0 : 2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// A grandchild, and an array opened in a child.
TEST_P(Fork, GenerationsDoNotDisturbEachOther) {
  const Array array = open(GetParam());
  EXPECT_EQ(in_a_child([&] {
              const Array own =
                  Array::open(folder_.path("numbers"), counted(kForkColumns, 4_MiB, GetParam()));
              return gather_is_right(array) &&
                     in_a_child([&] { return gather_is_right(array) && gather_is_right(own); }) ==
                         "right" &&
                     gather_is_right(own);
            }),
            "right");
}

// Counts the rings in /proc/self/fd: the child creates its own, in addition to the parent's.
TEST_F(ForkTest, AChildsRingIsItsOwn) {
  const Array array = open(EngineKind::kDirect);
  if (array.engine().how.find("io_uring") == std::string::npos) GTEST_SKIP() << array.engine().how;
  const auto rings = [] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
      count += target.find("io_uring") != std::string::npos;
    }
    return count;
  };
  const int before = rings();
  EXPECT_GE(before, 1);
  EXPECT_EQ(in_a_child([&] { return gather_is_right(array) && rings() == before + 1; }), "right");
  EXPECT_EQ(rings(), before);
}

std::string name_of(const testing::TestParamInfo<EngineKind>& tested) {
  return std::string(engine_name(tested.param));
}
INSTANTIATE_TEST_SUITE_P(Engines, Fork, testing::ValuesIn(kAllEngines), name_of);
INSTANTIATE_TEST_SUITE_P(Engines, ForkMeanwhile, testing::ValuesIn(kAllEngines), name_of);

}  // namespace
}  // namespace evenkeel
