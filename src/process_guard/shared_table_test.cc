// labels: threads
#include "process_guard/shared_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstring>
#include <thread>

namespace evenkeel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::IsEmpty;
using ::testing::SizeIs;

pid_t ended_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

// The table as a program sees it, opened by the path in the environment variable.
class SharedTableTest : public ::testing::Test {
 protected:
  SharedTableTest() {
    const std::string variable = owner.variable();
    const Fd fd(::open(variable.substr(variable.find('=') + 1).c_str(), O_RDWR | O_CLOEXEC));
    table = static_cast<shared_table::SharedTable*>(
        ::mmap(nullptr, sizeof(shared_table::SharedTable), PROT_READ | PROT_WRITE, MAP_SHARED,
               fd.get(), 0));
    mappings = static_cast<shared_table::Mapping*>(
        ::mmap(nullptr, sizeof(shared_table::MappingArray), PROT_READ | PROT_WRITE, MAP_SHARED,
               fd.get(), static_cast<off_t>(shared_table::mappings_offset(0))));
  }
  ~SharedTableTest() override {
    ::munmap(table, sizeof(shared_table::SharedTable));
    ::munmap(mappings, sizeof(shared_table::MappingArray));
  }

  // Registers this process and thread, a file and a mapping.
  void fill() {
    shared_table::Process& process = table->processes[0];
    process.pid = static_cast<std::uint32_t>(::getpid());
    process.thread = static_cast<std::uint32_t>(::gettid());
    process.mappings_used = 1;
    process.state = shared_table::kFilled;
    table->processes_used = 1;
    shared_table::File& file = table->files[7];
    file.device = 1;
    file.inode = 2;
    file.born = 3;
    std::memcpy(file.path, "/data/file", 10);
    file.path_length = 10;
    file.state = shared_table::kFilled;
    shared_table::Mapping& mapping = mappings[0];
    mapping.generation = 5;
    mapping.file = 7;
    mapping.flags = shared_table::kShared | shared_table::kAdvised;
    mapping.begin = 0x10000;
    mapping.end = 0x20000;
    mapping.offset = 0x3000;
    mapping.state = shared_table::kFilled;
  }
  shared_table::Process& process() { return table->processes[0]; }
  shared_table::Command& command() { return process().command; }
  // Answers as the thread of a program does.
  void answer(int result, bool dropped) {
    command().ranges[0].result = result;
    command().ranges[0].dropped = dropped ? 1 : 0;
    command().done = command().posted.load();
    ::syscall(SYS_futex, &command().done, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  SharedTableOwner::Answer release(const TableEntry& mapping, std::chrono::nanoseconds timeout) {
    return owner.release(mapping, mapping.begin, mapping.end, timeout);
  }

  SharedTableOwner owner{{.least_bytes = 12345, .first_advice = MADV_RANDOM}};
  shared_table::SharedTable* table = nullptr;
  shared_table::Mapping* mappings = nullptr;  // of process 0
};

TEST_F(SharedTableTest, HasTheOptionsForPrograms) {
  ASSERT_NE(table, MAP_FAILED);
  EXPECT_EQ(table->magic, shared_table::kMagic);
  EXPECT_EQ(table->version, shared_table::kVersion);
  EXPECT_EQ(table->size, shared_table::kTableBytes);
  EXPECT_EQ(table->least_bytes, 12345u);
  EXPECT_EQ(table->first_advice, static_cast<std::uint32_t>(MADV_RANDOM));
  EXPECT_THAT(owner.mappings(), IsEmpty());
}

TEST_F(SharedTableTest, NoProgramCanShortenIt) {
  const std::string variable = owner.variable();
  EXPECT_EQ(::truncate(variable.substr(variable.find('=') + 1).c_str(), 0), -1);
}

TEST_F(SharedTableTest, ReadsMappingsAndFiles) {
  fill();
  const auto found = owner.mappings();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].pid, ::getpid());
  EXPECT_EQ(found[0].generation, 5u);
  EXPECT_EQ(found[0].begin, 0x10000u);
  EXPECT_EQ(found[0].end, 0x20000u);
  EXPECT_EQ(found[0].offset, 0x3000u);
  EXPECT_TRUE(found[0].shared);
  EXPECT_FALSE(found[0].writable);
  EXPECT_TRUE(found[0].advised);
  const TableFile file = owner.file(found[0].file);
  EXPECT_EQ(file.device, 1u);
  EXPECT_EQ(file.inode, 2u);
  EXPECT_EQ(file.born, 3u);
  EXPECT_EQ(file.path, "/data/file");
  owner.set_random(found[0].file, found[0].file_generation + 1, true);
  EXPECT_EQ(table->files[7].random, 0u) << "the entry has another file";
  owner.set_random(found[0].file, found[0].file_generation, true);
  EXPECT_EQ(table->files[7].random, 1u);
}

TEST_F(SharedTableTest, InvalidEntriesAreNotRead) {
  fill();
  shared_table::Mapping& mapping = mappings[0];
  mapping.file = shared_table::kFiles;
  EXPECT_THAT(owner.mappings(), IsEmpty());
  mapping.file = 8;  // empty
  EXPECT_THAT(owner.mappings(), IsEmpty());
  mapping.file = 7;
  mapping.end = 0x10000;
  EXPECT_THAT(owner.mappings(), IsEmpty());
  mapping.end = 0x20000;
  mapping.offset = UINT64_MAX - 10;
  EXPECT_THAT(owner.mappings(), IsEmpty());
  mapping.offset = 0;
  mapping.state = shared_table::kFilling;
  EXPECT_THAT(owner.mappings(), IsEmpty());
  mapping.state = shared_table::kFilled;
  process().mappings_used = UINT32_MAX;
  table->processes_used = UINT32_MAX;
  EXPECT_THAT(owner.mappings(), SizeIs(1));
  table->files[7].path_length = shared_table::kShortPath + 1;
  table->files[7].long_path = shared_table::kLongPathBytes - 5;
  EXPECT_EQ(owner.file(7).path, "");
  table->files[7].long_path = UINT32_MAX - 5;
  EXPECT_EQ(owner.file(7).path, "");
  table->files[7].path_length = UINT32_MAX;
  table->files[7].long_path = 0;
  EXPECT_EQ(owner.file(7).path, "");
  EXPECT_EQ(owner.file(UINT32_MAX).path, "");
  owner.set_random(UINT32_MAX, 0, true);
  owner.forget_process(UINT32_MAX, 1, 0);
  TableEntry nowhere = owner.mappings().at(0);
  nowhere.process = shared_table::kProcesses;
  EXPECT_EQ(release(nowhere, seconds(20)).error, ESTALE);
  nowhere.process = 0;
  nowhere.mapping = shared_table::kMappings;
  EXPECT_EQ(release(nowhere, seconds(20)).error, ESTALE);
}

TEST_F(SharedTableTest, EndedProcessesAreRemoved) {
  fill();
  process().pid = static_cast<std::uint32_t>(ended_process());
  EXPECT_THAT(owner.mappings(), IsEmpty());
  EXPECT_EQ(process().state, shared_table::kEmpty);

  fill();
  process().thread = static_cast<std::uint32_t>(ended_process());  // as after exec
  EXPECT_THAT(owner.mappings(), IsEmpty());
  EXPECT_EQ(process().state, shared_table::kEmpty);

  fill();
  process().pid = UINT32_MAX;  // kill(-1) would reach every process
  EXPECT_THAT(owner.mappings(), IsEmpty());
}

// A child of fork that calls exec before its thread has started looks like this.
TEST_F(SharedTableTest, AProcessWithoutItsThreadIsLeftOutAfterAWhile) {
  fill();
  process().thread = 0;
  EXPECT_THAT(owner.mappings(), SizeIs(1)) << "the thread is about to start";
  while (!owner.mappings().empty()) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(process().state, shared_table::kFilled) << "it may be a slow start";
  process().thread = static_cast<std::uint32_t>(::gettid());
  EXPECT_THAT(owner.mappings(), SizeIs(1));
  process().thread = 0;
  process().pid = static_cast<std::uint32_t>(ended_process());
  EXPECT_THAT(owner.mappings(), IsEmpty());
  EXPECT_EQ(process().state, shared_table::kEmpty);
}

TEST_F(SharedTableTest, ForgettingAProcessDoesNotFreeTheEntryOfAnother) {
  fill();
  owner.forget_process(0, ::getpid() + 1, 0);
  EXPECT_EQ(process().state, shared_table::kFilled);
  owner.forget_process(0, ::getpid(), 0);
  EXPECT_EQ(process().state, shared_table::kEmpty);
}

// The program that a process starts by exec may register after the tool found that the process has
// no thread any more.
TEST_F(SharedTableTest, ForgettingAProcessDoesNotFreeTheEntryOfWhatItHasStarted) {
  fill();
  const std::uint32_t before = process().registrations++;
  owner.forget_process(0, ::getpid(), before);
  EXPECT_EQ(process().state, shared_table::kFilled);
  EXPECT_THAT(owner.mappings(), SizeIs(1));
  owner.forget_process(0, ::getpid(), before + 1);
  EXPECT_EQ(process().state, shared_table::kEmpty);
}

TEST_F(SharedTableTest, CommandsAreAnswered) {
  fill();
  std::thread program([&] {
    while (command().posted == command().done) std::this_thread::yield();
    EXPECT_EQ(command().kind, shared_table::kRelease);
    EXPECT_EQ(command().ranges[0].mapping, 0u);
    EXPECT_EQ(command().ranges[0].generation, 5u);
    EXPECT_EQ(command().ranges[0].begin, 0x11000u);
    EXPECT_EQ(command().ranges[0].end, 0x12000u);
    answer(0, true);
    while (command().posted == command().done) std::this_thread::yield();
    EXPECT_EQ(command().kind, shared_table::kAdvise);
    EXPECT_EQ(command().advice, static_cast<std::uint32_t>(MADV_SEQUENTIAL));
    answer(EINVAL, false);
  });
  const TableEntry mapping = owner.mappings().at(0);
  const auto first = owner.release(mapping, 0x11000, 0x12000, seconds(20));
  EXPECT_EQ(first.error, 0);
  EXPECT_TRUE(first.dropped);
  const auto second = owner.advise(mapping, 0x11000, 0x12000, MADV_SEQUENTIAL, seconds(20));
  EXPECT_EQ(second.error, EINVAL);
  EXPECT_FALSE(second.dropped);
  program.join();
}

TEST_F(SharedTableTest, ACommandWithoutAnswerBlocksOthers) {
  fill();
  const TableEntry mapping = owner.mappings().at(0);
  EXPECT_EQ(release(mapping, milliseconds(1)).error, ETIMEDOUT);
  EXPECT_EQ(release(mapping, seconds(20)).error, EBUSY);
  answer(0, false);  // late
  EXPECT_EQ(release(mapping, milliseconds(1)).error, ETIMEDOUT);
  EXPECT_EQ(command().posted, 2u);
}

TEST_F(SharedTableTest, OneCommandAtATime) {
  fill();
  const TableEntry mapping = owner.mappings().at(0);
  std::thread first([&] { EXPECT_EQ(release(mapping, seconds(60)).error, 0); });
  while (command().posted == 0) std::this_thread::yield();
  EXPECT_EQ(release(mapping, seconds(60)).error, EBUSY);
  answer(0, false);
  first.join();
}

TEST_F(SharedTableTest, StaleCommandsAreNotPosted) {
  fill();
  TableEntry mapping = owner.mappings().at(0);
  mapping.generation = 4;
  EXPECT_EQ(release(mapping, seconds(20)).error, ESTALE);
  mapping.generation = 5;
  mapping.pid += 1;
  EXPECT_EQ(release(mapping, seconds(20)).error, ESTALE);
  EXPECT_EQ(command().posted, 0u);
}

TEST_F(SharedTableTest, AProcessThatEndsIsNotWaitedFor) {
  fill();
  const TableEntry mapping = owner.mappings().at(0);
  std::thread later([&] {
    while (command().posted == 0) std::this_thread::yield();
    process().thread = static_cast<std::uint32_t>(ended_process());
  });
  EXPECT_EQ(release(mapping, std::chrono::hours(1)).error, ESTALE);
  later.join();
}

TEST_F(SharedTableTest, AProcessThatTakesItsEntryBackIsNotWaitedFor) {
  fill();
  const TableEntry mapping = owner.mappings().at(0);
  std::thread later([&] {
    while (command().posted == 0) std::this_thread::yield();
    process().state = shared_table::kEmpty;
  });
  EXPECT_EQ(release(mapping, std::chrono::hours(1)).error, ESTALE);
  later.join();
}

TEST_F(SharedTableTest, WaitingForAChange) {
  std::uint32_t seen = 0;
  EXPECT_FALSE(owner.wait(seen, milliseconds(1)));
  table->changes.fetch_add(1);
  EXPECT_TRUE(owner.wait(seen, seconds(0))) << "changed before";
  EXPECT_FALSE(owner.wait(seen, seconds(0)));
  std::thread other([&] {
    while (table->waiters == 0) std::this_thread::yield();
    table->changes.fetch_add(1);
    ::syscall(SYS_futex, &table->changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  });
  EXPECT_TRUE(owner.wait(seen, std::chrono::hours(1)));
  EXPECT_EQ(seen, 2u);
  other.join();
  EXPECT_EQ(table->waiters, 0u);
}

TEST_F(SharedTableTest, InterruptingAWait) {
  std::uint32_t seen = 0;
  std::thread other([&] {
    while (table->waiters == 0) std::this_thread::yield();
    owner.interrupt();
  });
  EXPECT_TRUE(owner.wait(seen, std::chrono::nanoseconds::max()));
  other.join();
}

}  // namespace
}  // namespace evenkeel
