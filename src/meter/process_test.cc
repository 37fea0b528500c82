#include "meter/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "meter/temp_file.h"

namespace evenkeel {
namespace {

TEST(Meter, StatusFieldsBecomeBytes) {
  const auto memory = parse_status(
      "Name:\tRssAnon: 9 kB\nVmHWM:\t  900 kB\nVmRSS:\t 60 kB\nRssAnon:\t     10 kB\n"
      "RssFile:\t20 kB\nRssShmem:\t30 kB\nVmPTE:\t4 kB\nVmSwap:\t5 kB\n");
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->anon, 10_KiB);
  EXPECT_EQ(memory->file, 20_KiB);
  EXPECT_EQ(memory->shmem, 30_KiB);
  EXPECT_EQ(memory->page_tables, 4_KiB);
  EXPECT_EQ(memory->swap, 5_KiB);
  EXPECT_EQ(memory->peak_rss, 900_KiB);
  EXPECT_EQ(memory->rss(), 60_KiB);
}

TEST(Meter, StatusWithoutMemoryIsEmpty) {
  EXPECT_FALSE(parse_status("Name:\tkthreadd\nState:\tS (sleeping)\n"));
  EXPECT_FALSE(parse_status(""));
  EXPECT_FALSE(parse_status("RssAnon:\tnonsense kB\nRssAnon"));
}

TEST(Meter, OnlyDiskBytesAreReadFromIo) {
  EXPECT_EQ(parse_io("rchar: 1\nread_bytes: 4096\ncancelled_write_bytes: 9\n"), 4096u);
  EXPECT_FALSE(parse_io("rchar: 1\n"));
}

TEST(Meter, NoSuchProcessIsAnError) {
  try {
    process_memory(0x3ffffff0);
    FAIL() << "measured a process that does not exist";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kSystem);
    EXPECT_EQ(error.code(), ESRCH);
  }
}

TEST(Meter, AProcessThatEndedHasNoSample) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const ProcessMeter meter(child);
  EXPECT_TRUE(meter.sample());
  ::kill(child, SIGKILL);
  ::siginfo_t info;
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_FALSE(meter.sample());  // a zombie has no memory
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(meter.sample());
}

std::uint64_t growth(std::uint64_t before, std::uint64_t after) {
  return after > before ? after - before : 0;
}

void expect_near(std::uint64_t measured, std::uint64_t wanted) {
  // The kernel counts in batches for each thread and may evict a page at any time. A wrong unit or
  // pages counted twice would be far off.
  EXPECT_NEAR(static_cast<double>(measured), static_cast<double>(wanted),
              0.125 * static_cast<double>(wanted));
}

TEST(MemoryMeter, AnonymousPagesAreCounted) {
  constexpr std::uint64_t kBytes = 64_MiB;
  const ProcessMemory before = process_memory();
  void* map = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  ASSERT_NE(map, MAP_FAILED);
  const ProcessMemory after = process_memory();
  ::munmap(map, kBytes);
  expect_near(growth(before.anon, after.anon), kBytes);
  EXPECT_LT(growth(before.file, after.file), 1_MiB);
  EXPECT_GE(after.peak_rss, after.rss());
}

TEST(MemoryMeter, MappedFilePagesAreCounted) {
  constexpr std::uint64_t kBytes = 64_MiB;
  const TempFile file(kBytes);
  const Fd fd(::open(file.path().c_str(), O_RDONLY | O_CLOEXEC));
  const ProcessMemory before = process_memory();
  void* map = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(map, MAP_FAILED);
  ::mlock(map, kBytes);  // if permitted, it prevents eviction
  unsigned sum = 0;
  for (std::uint64_t at = 0; at < kBytes; at += 4096) sum += static_cast<unsigned char*>(map)[at];
  const ProcessMemory after = process_memory();
  ::munmap(map, kBytes);
  EXPECT_NE(sum, 1u);
  expect_near(growth(before.file, after.file), kBytes);
  EXPECT_LT(growth(before.anon, after.anon), 1_MiB);
}

TEST(MemoryMeter, SharedPagesAreCounted) {
  constexpr std::uint64_t kBytes = 32_MiB;
  const ProcessMemory before = process_memory();
  void* map = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  ASSERT_NE(map, MAP_FAILED);
  const ProcessMemory after = process_memory();
  ::munmap(map, kBytes);
  expect_near(growth(before.shmem, after.shmem), kBytes);
}

TEST(MemoryMeter, DiskBytesAreCounted) {
  constexpr std::uint64_t kBytes = 16_MiB;
  const TempFile file(kBytes);
  const auto left = drop_file_cache(file.path());
  if (!left || *left != 0) GTEST_SKIP() << "the cache of this file system cannot be dropped";
  const auto before = disk_bytes_read();
  if (!before) GTEST_SKIP() << "this kernel does not count bytes read";
  file.read_through();
  const std::uint64_t read = *disk_bytes_read() - *before;
  EXPECT_GE(read, kBytes);
  EXPECT_LT(read, kBytes + 4_MiB);
}

}  // namespace
}  // namespace evenkeel
