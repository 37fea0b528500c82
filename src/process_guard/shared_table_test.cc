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

// The board as a program sees it, opened by the name that the environment has.
class SharedTableTest : public ::testing::Test {
 protected:
  SharedTableTest() {
    const std::string variable = keeper.variable();
    const Fd fd(::open(variable.substr(variable.find('=') + 1).c_str(), O_RDWR | O_CLOEXEC));
    board = static_cast<shared_table::SharedTable*>(
        ::mmap(nullptr, sizeof(shared_table::SharedTable), PROT_READ | PROT_WRITE, MAP_SHARED,
               fd.get(), 0));
  }
  ~SharedTableTest() override { ::munmap(board, sizeof(shared_table::SharedTable)); }

  // This test's own process and thread are there, and a file and a mapping.
  void fill(std::uint32_t slot = 0) {
    shared_table::Process& process = board->processes[slot];
    process.pid = static_cast<std::uint32_t>(::getpid());
    process.thread = static_cast<std::uint32_t>(::gettid());
    process.mappings_used = 1;
    process.state = shared_table::kFilled;
    board->processes_used = slot + 1;
    std::memcpy(board->paths + 10, "/data/file", 10);
    shared_table::File& file = board->files[7];
    file.device = 1;
    file.inode = 2;
    file.born = 3;
    file.path = 10;
    file.path_length = 10;
    file.state = shared_table::kFilled;
    shared_table::Mapping& mapping = process.mappings[0];
    mapping.generation = 5;
    mapping.file = 7;
    mapping.flags = shared_table::kShared | shared_table::kAdvised;
    mapping.begin = 0x10000;
    mapping.end = 0x20000;
    mapping.offset = 0x3000;
    mapping.state = shared_table::kFilled;
  }
  shared_table::Process& process() { return board->processes[0]; }
  shared_table::Order& order() { return process().order; }
  // As a program's thread does.
  void answer(int result, bool dropped) {
    order().result = result;
    order().dropped = dropped ? 1 : 0;
    order().done = order().posted.load();
    ::syscall(SYS_futex, &order().done, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  SharedTableOwner::Answer let_go(const TableEntry& mapping, std::chrono::nanoseconds timeout) {
    return keeper.let_go(mapping, mapping.begin, mapping.end, timeout);
  }

  SharedTableOwner keeper{{.least_bytes = 12345, .first_advice = MADV_RANDOM}};
  shared_table::SharedTable* board = nullptr;
};

TEST_F(SharedTableTest, TellsProgramsWhatTheyNeed) {
  ASSERT_NE(board, MAP_FAILED);
  EXPECT_EQ(board->magic, shared_table::kMagic);
  EXPECT_EQ(board->version, shared_table::kVersion);
  EXPECT_EQ(board->size, sizeof(shared_table::SharedTable));
  EXPECT_EQ(board->least_bytes, 12345u);
  EXPECT_EQ(board->first_advice, static_cast<std::uint32_t>(MADV_RANDOM));
  EXPECT_THAT(keeper.mappings(), IsEmpty());
}

TEST_F(SharedTableTest, NoProgramCanShortenIt) {
  const std::string variable = keeper.variable();
  EXPECT_EQ(::truncate(variable.substr(variable.find('=') + 1).c_str(), 0), -1);
}

TEST_F(SharedTableTest, ReadsMappingsAndFiles) {
  fill();
  const auto found = keeper.mappings();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].pid, ::getpid());
  EXPECT_EQ(found[0].generation, 5u);
  EXPECT_EQ(found[0].begin, 0x10000u);
  EXPECT_EQ(found[0].end, 0x20000u);
  EXPECT_EQ(found[0].offset, 0x3000u);
  EXPECT_TRUE(found[0].shared);
  EXPECT_FALSE(found[0].writable);
  EXPECT_TRUE(found[0].advised);
  const TableFile file = keeper.file(found[0].file);
  EXPECT_EQ(file.device, 1u);
  EXPECT_EQ(file.inode, 2u);
  EXPECT_EQ(file.born, 3u);
  EXPECT_EQ(file.path, "/data/file");
  keeper.set_random(found[0].file, true);
  EXPECT_EQ(board->files[7].random, 1u);
}

TEST_F(SharedTableTest, WhatMakesNoSenseIsNotRead) {
  fill();
  shared_table::Mapping& mapping = process().mappings[0];
  mapping.file = shared_table::kFiles;
  EXPECT_THAT(keeper.mappings(), IsEmpty());
  mapping.file = 8;  // empty
  EXPECT_THAT(keeper.mappings(), IsEmpty());
  mapping.file = 7;
  mapping.end = 0x10000;
  EXPECT_THAT(keeper.mappings(), IsEmpty());
  mapping.end = 0x20000;
  mapping.offset = UINT64_MAX - 10;
  EXPECT_THAT(keeper.mappings(), IsEmpty());
  mapping.offset = 0;
  mapping.state = shared_table::kFilling;
  EXPECT_THAT(keeper.mappings(), IsEmpty());
  mapping.state = shared_table::kFilled;
  process().mappings_used = UINT32_MAX;
  board->processes_used = UINT32_MAX;
  EXPECT_THAT(keeper.mappings(), SizeIs(1));
  board->files[7].path = shared_table::kPathBytes - 5;
  EXPECT_EQ(keeper.file(7).path, "");
  board->files[7].path = UINT64_MAX - 5;
  EXPECT_EQ(keeper.file(7).path, "");
  EXPECT_EQ(keeper.file(UINT32_MAX).path, "");
  keeper.set_random(UINT32_MAX, true);
  keeper.forget_process(UINT32_MAX, 1);
  TableEntry nowhere = keeper.mappings().at(0);
  nowhere.process = shared_table::kProcesses;
  EXPECT_EQ(let_go(nowhere, seconds(20)).error, ESTALE);
  nowhere.process = 0;
  nowhere.mapping = shared_table::kMappings;
  EXPECT_EQ(let_go(nowhere, seconds(20)).error, ESTALE);
}

TEST_F(SharedTableTest, EndedProcessesAreTakenOff) {
  fill();
  process().pid = static_cast<std::uint32_t>(ended_process());
  EXPECT_THAT(keeper.mappings(), IsEmpty());
  EXPECT_EQ(process().state, shared_table::kEmpty);

  fill();
  process().thread = static_cast<std::uint32_t>(ended_process());  // by exec, say
  EXPECT_THAT(keeper.mappings(), IsEmpty());
  EXPECT_EQ(process().state, shared_table::kEmpty);

  fill();
  process().pid = UINT32_MAX;  // kill(-1) would reach everyone
  EXPECT_THAT(keeper.mappings(), IsEmpty());
}

TEST_F(SharedTableTest, ForgettingSparesANewOwner) {
  fill();
  keeper.forget_process(0, ::getpid() + 1);
  EXPECT_EQ(process().state, shared_table::kFilled);
  keeper.forget_process(0, ::getpid());
  EXPECT_EQ(process().state, shared_table::kEmpty);
}

TEST_F(SharedTableTest, OrdersAreAnswered) {
  fill();
  std::thread program([&] {
    while (order().posted == order().done) std::this_thread::yield();
    EXPECT_EQ(order().kind, shared_table::kLetGo);
    EXPECT_EQ(order().mapping, 0u);
    EXPECT_EQ(order().generation, 5u);
    EXPECT_EQ(order().begin, 0x11000u);
    EXPECT_EQ(order().end, 0x12000u);
    answer(0, true);
    while (order().posted == order().done) std::this_thread::yield();
    EXPECT_EQ(order().kind, shared_table::kAdvise);
    EXPECT_EQ(order().advice, static_cast<std::uint32_t>(MADV_SEQUENTIAL));
    answer(EINVAL, false);
  });
  const TableEntry mapping = keeper.mappings().at(0);
  const auto first = keeper.let_go(mapping, 0x11000, 0x12000, seconds(20));
  EXPECT_EQ(first.error, 0);
  EXPECT_TRUE(first.dropped);
  const auto second = keeper.advise(mapping, 0x11000, 0x12000, MADV_SEQUENTIAL, seconds(20));
  EXPECT_EQ(second.error, EINVAL);
  EXPECT_FALSE(second.dropped);
  program.join();
}

TEST_F(SharedTableTest, AnOrderNotAnsweredKeepsOthersAway) {
  fill();
  const TableEntry mapping = keeper.mappings().at(0);
  EXPECT_EQ(let_go(mapping, milliseconds(1)).error, ETIMEDOUT);
  EXPECT_EQ(let_go(mapping, seconds(20)).error, EBUSY);
  answer(0, false);  // late
  EXPECT_EQ(let_go(mapping, milliseconds(1)).error, ETIMEDOUT);
  EXPECT_EQ(order().posted, 2u);
}

TEST_F(SharedTableTest, OneOrderAtATime) {
  fill();
  const TableEntry mapping = keeper.mappings().at(0);
  std::thread first([&] { EXPECT_EQ(let_go(mapping, seconds(60)).error, 0); });
  while (order().posted == 0) std::this_thread::yield();
  EXPECT_EQ(let_go(mapping, seconds(60)).error, EBUSY);
  answer(0, false);
  first.join();
}

TEST_F(SharedTableTest, StaleOrdersAreNotPosted) {
  fill();
  TableEntry mapping = keeper.mappings().at(0);
  mapping.generation = 4;
  EXPECT_EQ(let_go(mapping, seconds(20)).error, ESTALE);
  mapping.generation = 5;
  mapping.pid += 1;
  EXPECT_EQ(let_go(mapping, seconds(20)).error, ESTALE);
  EXPECT_EQ(order().posted, 0u);
}

TEST_F(SharedTableTest, AProcessThatEndsIsNotWaitedFor) {
  fill();
  const TableEntry mapping = keeper.mappings().at(0);
  std::thread later([&] {
    while (order().posted == 0) std::this_thread::yield();
    process().thread = static_cast<std::uint32_t>(ended_process());
  });
  EXPECT_EQ(let_go(mapping, std::chrono::hours(1)).error, ESTALE);
  later.join();
}

TEST_F(SharedTableTest, WaitingForTheBell) {
  std::uint32_t seen = 0;
  EXPECT_FALSE(keeper.wait(seen, milliseconds(1)));
  board->bell.fetch_add(1);
  EXPECT_TRUE(keeper.wait(seen, seconds(0))) << "rung before";
  EXPECT_FALSE(keeper.wait(seen, seconds(0)));
  std::thread ringer([&] {
    while (board->waiting == 0) std::this_thread::yield();
    board->bell.fetch_add(1);
    ::syscall(SYS_futex, &board->bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  });
  EXPECT_TRUE(keeper.wait(seen, std::chrono::hours(1)));
  EXPECT_EQ(seen, 2u);
  ringer.join();
  EXPECT_EQ(board->waiting, 0u);
}

TEST_F(SharedTableTest, InterruptingAWait) {
  std::uint32_t seen = 0;
  std::thread other([&] {
    while (board->waiting == 0) std::this_thread::yield();
    keeper.interrupt();
  });
  EXPECT_TRUE(keeper.wait(seen, std::chrono::nanoseconds::max()));
  other.join();
}

}  // namespace
}  // namespace evenkeel
