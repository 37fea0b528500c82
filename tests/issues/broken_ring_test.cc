// If a ring failed with reads in flight, the buffers were used again while the kernel could still
// write into them, the files stayed pinned, and the report still named io_uring.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "base/fd.h"
#include "base/memory.h"
#include "engine/queue.h"
#include "tests/counting_file.h"
#include "tests/fault_script.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

TEST(BrokenRing, AbandonedItWritesNoMore) {
  constexpr std::uint32_t kReads = 16, kBytes = 1 << 20;
  const auto disk = disk_folder();
  if (!disk) GTEST_SKIP() << "no folder on a disk that takes O_DIRECT";
  const TempFolder folder(*disk);
  const std::string path = folder.write_through("data", random_bytes(kReads * kBytes));
  const PageBuffer memory(Budget(64_MiB), kReads * kBytes, "test");
  for (int round = 0; round < 5; ++round) {
    const Fd fd = open_readable(path, O_DIRECT);
    std::string why_not;
    const auto queue = make_uring_queue(kReads, {memory.data(), memory.size()}, 0, why_not);
    if (!queue) GTEST_SKIP() << why_not;
    for (std::uint32_t i = 0; i < kReads; ++i) {
      queue->push({fd.get(), 0, i, memory.data() + i * kBytes, kBytes, std::uint64_t{i} * kBytes});
    }
    Completion done[1];
    queue->wait(1, done);
    FaultScript script;
    script.spoil(sys::Call::kRingEnter, 0, {.error = EIO}, true);
    Completion rest[kReads];
    std::size_t taken = 1;
    EXPECT_THROW(while (taken < kReads + 1) taken += queue->wait(1, rest),
                 Error);  // completed reads are returned first
    queue->abandon();
    std::memset(memory.data(), 0x5a, memory.size());
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    std::uint64_t changed = 0;
    for (std::uint64_t i = 0; i < memory.size(); i += 512) {
      changed += memory.data()[i] != std::byte{0x5a};
    }
    ASSERT_EQ(changed, 0u) << "blocks were written after all";
  }
}

TEST(BrokenRing, TheNextReadGoesByThreadsAndTheReportSaysSo) {
  const TempFolder folder(disk_folder().value_or(std::filesystem::temp_directory_path()));
  const std::string path = counting_file(folder, "numbers", 800'000);
  const Array array = Array::open(path, counted(8, 2_MiB, EngineKind::kDirect));
  if (array.engine().how.find("io_uring,") == std::string::npos) GTEST_SKIP() << array.engine().how;
  std::vector<std::uint64_t> rows;
  for (std::uint64_t row = 0; row < 100'000; row += 1'511) rows.push_back(row);
  {
    FaultScript script;
    script.spoil(sys::Call::kRingEnter, 0, {.error = EIO}, true);  // may be called only once
    EXPECT_EQ(error_of([&] { gathered(array, rows); }).code(), EIO);
  }
  EXPECT_THAT(array.engine().how, HasSubstr("threads (io_uring broke down)"));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(gathered(array, rows), rows_of_counting(rows, 8));
}

}  // namespace
}  // namespace evenkeel
