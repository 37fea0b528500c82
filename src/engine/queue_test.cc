// labels: threads reads
#include "engine/queue.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <ostream>
#include <random>
#include <vector>

#include "base/fd.h"
#include "base/memory.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

constexpr std::uint32_t kDepth = 8;
constexpr std::uint32_t kMostBytes = 16 << 10;

struct QueueKind {
  const char* name;
  bool uring, registered;
  friend std::ostream& operator<<(std::ostream& out, const QueueKind& kind) {
    return out << kind.name;
  }
};

class QueueTest : public testing::TestWithParam<QueueKind> {
 protected:
  QueueTest()
      : arena_(Budget(16_MiB), kDepth * kMostBytes, "arena"),
        bytes_(random_bytes(300'123)),
        path_(folder_.write("data", bytes_)),
        fd_(open_readable(path_)) {}

  void SetUp() override {
    if (!GetParam().uring) {
      queue_ = make_thread_queue(kDepth);
      return;
    }
    std::string why_not;
    const std::span<std::byte> all{arena_.data(), arena_.size()};
    queue_ = GetParam().registered ? make_uring_queue(kDepth, all, 2, why_not)
                                   : make_uring_queue(kDepth, {}, 0, why_not);
    if (!queue_) GTEST_SKIP() << why_not;
  }

  std::byte* buffer(std::uint32_t id) const { return arena_.data() + id * kMostBytes; }
  ReadOp op(std::uint32_t id, std::uint64_t offset, std::uint32_t length) const {
    return {fd_.get(), 0, id, buffer(id), length, offset};
  }
  // Waits until `count` reads have completed, in one call of `wait` or several.
  std::map<std::uint32_t, std::int32_t> collect(std::size_t count) {
    std::map<std::uint32_t, std::int32_t> results;
    std::vector<Completion> out(kDepth);
    while (results.size() < count) {
      const std::size_t got = queue_->wait(1, out);
      for (std::size_t i = 0; i < got; ++i) {
        EXPECT_TRUE(results.emplace(out[i].id, out[i].result).second) << "twice " << out[i].id;
      }
    }
    return results;
  }
  std::int32_t result_of(const ReadOp& one) {
    queue_->push(one);
    return collect(1).at(one.id);
  }
  bool holds(std::uint32_t id, std::uint64_t offset, std::size_t length) const {
    return std::memcmp(buffer(id), bytes_.data() + offset, length) == 0;
  }

  TempFolder folder_;
  PageBuffer arena_;
  const std::string bytes_;
  const std::string path_;
  Fd fd_;
  std::unique_ptr<ReadQueue> queue_;
};

TEST_P(QueueTest, EveryReadCompletesOnceWithItsBytesWhileTheQueueIsKeptFull) {
  std::mt19937 random(3);
  std::vector<std::uint32_t> free;
  for (std::uint32_t id = 0; id < queue_->depth(); ++id) free.push_back(id);
  std::map<std::uint32_t, std::pair<std::uint64_t, std::uint32_t>> flying;
  std::vector<Completion> out(kDepth);
  int started = 0, done = 0;
  while (done < 2000) {
    while (!free.empty() && started < 2000) {
      const std::uint32_t length = 1 + static_cast<std::uint32_t>(random() % kMostBytes);
      const std::uint64_t offset = random() % (bytes_.size() - length);
      queue_->push(op(free.back(), offset, length));
      flying[free.back()] = {offset, length};
      free.pop_back();
      ++started;
    }
    const std::size_t got = queue_->wait(1 + random() % flying.size(), out);
    for (std::size_t i = 0; i < got; ++i, ++done) {
      const auto found = flying.find(out[i].id);
      ASSERT_NE(found, flying.end());
      const auto [offset, length] = found->second;
      ASSERT_EQ(out[i].result, static_cast<std::int32_t>(length));
      ASSERT_TRUE(holds(out[i].id, offset, length));
      free.push_back(out[i].id);
      flying.erase(found);
    }
  }
  EXPECT_TRUE(flying.empty());
}

TEST_P(QueueTest, TakesAsManyAsItsDepth) {
  EXPECT_GE(queue_->depth(), 1u);
  EXPECT_LE(queue_->depth(), kDepth);
  for (std::uint32_t id = 0; id < queue_->depth(); ++id) queue_->push(op(id, id * 100, 100));
  const auto results = collect(queue_->depth());
  for (const auto& [id, result] : results) {
    EXPECT_EQ(result, 100);
    EXPECT_TRUE(holds(id, id * 100, 100));
  }
}

TEST_P(QueueTest, CompletionsThatFindNoRoomComeWithTheNextWait) {
  for (std::uint32_t id = 0; id < queue_->depth(); ++id) queue_->push(op(id, 0, 10));
  std::vector<bool> seen(kDepth);
  Completion one[1];
  for (std::uint32_t left = queue_->depth(); left > 0;) {
    const std::size_t got = queue_->wait(1, one);
    if (got == 0) continue;
    EXPECT_FALSE(seen[one[0].id]);
    seen[one[0].id] = true;
    --left;
  }
}

TEST_P(QueueTest, IsShortAtTheEndOfTheFileAndEmptyBehindIt) {
  EXPECT_EQ(result_of(op(0, bytes_.size() - 5, 100)), 5);
  EXPECT_TRUE(holds(0, bytes_.size() - 5, 5));
  EXPECT_EQ(result_of(op(0, bytes_.size(), 100)), 0);
  EXPECT_EQ(result_of(op(0, std::uint64_t{1} << 40, 100)), 0);
}

TEST_P(QueueTest, ErrorsArriveAsNegativeErrno) {
  ReadOp bad = op(0, 0, 10);
  bad.fd = 1'000'000;
  EXPECT_EQ(result_of(bad), -EBADF);
  const Fd directory(::open(folder_.root().c_str(), O_RDONLY | O_CLOEXEC));
  bad.fd = directory.get();
  EXPECT_EQ(result_of(bad), -EISDIR);
  bad = op(0, 0, 10);
  bad.buffer = reinterpret_cast<std::byte*>(16);  // not mapped
  EXPECT_EQ(result_of(bad), -EFAULT);
  EXPECT_EQ(result_of(op(0, 0, 10)), 10);  // the queue still works
  bad = op(0, 0, 10);
  bad.fd = 1'000'000;
  EXPECT_EQ(result_of(bad), -EBADF);
  EXPECT_EQ(result_of(op(0, 0, 10)), 10);  // with the descriptor it had before
}

TEST_P(QueueTest, AnErrorSpoilsNoOtherRead) {
  for (std::uint32_t id = 0; id < queue_->depth(); ++id) {
    ReadOp one = op(id, id * 50, 50);
    if (id % 2 == 1) {
      one.fd = 1'000'000;
      one.file = 1;
    }
    queue_->push(one);
  }
  for (const auto& [id, result] : collect(queue_->depth())) {
    EXPECT_EQ(result, id % 2 == 1 ? -EBADF : 50);
    if (id % 2 == 0) {
      EXPECT_TRUE(holds(id, id * 50, 50));
    }
  }
}

TEST_P(QueueTest, ADescriptorThatChangesUnderAFileIsNoticed) {
  const std::string other_bytes = random_bytes(1000, 2);
  const Fd other = open_readable(folder_.write("other", other_bytes));
  EXPECT_EQ(result_of(op(0, 0, 100)), 100);
  ReadOp moved = op(0, 0, 100);
  moved.fd = other.get();  // the same file number, another descriptor
  EXPECT_EQ(result_of(moved), 100);
  EXPECT_EQ(std::memcmp(buffer(0), other_bytes.data(), 100), 0);
  EXPECT_EQ(result_of(op(0, 0, 100)), 100);
  EXPECT_TRUE(holds(0, 0, 100));
}

TEST_P(QueueTest, ReadsIntoMemoryOutsideTheArena) {
  std::vector<std::byte> elsewhere(500);
  ReadOp one = op(0, 77, 500);
  one.buffer = elsewhere.data();
  EXPECT_EQ(result_of(one), 500);
  EXPECT_EQ(std::memcmp(elsewhere.data(), bytes_.data() + 77, 500), 0);
}

TEST_P(QueueTest, GoesAwayIdleUsedOrNeverUsed) {
  EXPECT_EQ(result_of(op(0, 0, 10)), 10);
  queue_.reset();
  SetUp();
  queue_.reset();  // a hang or a leak would show
}

TEST_P(QueueTest, SaysWhatItIs) {
  EXPECT_THAT(queue_->describe(),
              HasSubstr(GetParam().uring ? "io_uring, 8 in flight" : "threads"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, QueueTest,
                         testing::Values(QueueKind{"Uring", true, false},
                                         QueueKind{"UringRegistered", true, true},
                                         QueueKind{"Threads", false, false}),
                         [](const auto& instance) { return instance.param.name; });

TEST(ThreadQueueTest, WithoutThreadsReadsOneAtATimeAndSaysSo) {
  const TempFolder folder;
  const Fd fd = open_readable(folder.write("f", "0123456789"));
  const auto queue = make_thread_queue(0);
  EXPECT_EQ(queue->depth(), 1u);
  EXPECT_THAT(queue->describe(), HasSubstr("no thread could be started"));
  std::byte buffer[4];
  queue->push({fd.get(), 0, 3, buffer, 4, 2});
  Completion out[1];
  ASSERT_EQ(queue->wait(1, out), 1u);
  EXPECT_EQ(out[0].id, 3u);
  EXPECT_EQ(out[0].result, 4);
  EXPECT_EQ(std::memcmp(buffer, "2345", 4), 0);
}

}  // namespace
}  // namespace evenkeel
