#include "process_guard/table_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "evenkeel/bytes.h"
#include "guard/test_mapping.h"

namespace evenkeel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kBytes = 8_MiB;

// The board as a program would write it: this process stands for one, by a second mapping of the
// same memory. Nobody takes its orders.
class TableSourceTest : public testing::Test {
 protected:
  TableSourceTest() {
    const std::string variable = keeper_.variable();
    const std::string path = variable.substr(variable.find('=') + 1);
    const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    void* at = ::mmap(nullptr, sizeof(shared_table::SharedTable), PROT_READ | PROT_WRITE,
                      MAP_SHARED, fd.get(), 0);
    if (at == MAP_FAILED) throw std::runtime_error("mmap " + path);
    board_ = static_cast<shared_table::SharedTable*>(at);
    write_file();
    process().pid = static_cast<std::uint32_t>(::getpid());
    process().state = shared_table::kFilled;
    board_->processes_used = 1;
  }
  ~TableSourceTest() override { ::munmap(board_, sizeof(shared_table::SharedTable)); }

  shared_table::Process& process() { return board_->processes[0]; }

  void write_file() {
    struct stat status;
    ::fstat(file_.fd(), &status);
    shared_table::File& to = board_->files[5];
    to.device = status.st_dev;
    to.inode = status.st_ino;
    to.path_length = file_.path().size();
    std::memcpy(board_->paths, file_.path().data(), file_.path().size());
    to.state = shared_table::kFilled;
  }
  void write_mapping(std::uint32_t slot, const TestMapping& map, std::uint32_t generation,
                     std::uint32_t flags = shared_table::kShared) {
    shared_table::Mapping& to = process().mappings[slot];
    to.file = 5;
    to.flags = flags;
    to.begin = reinterpret_cast<std::uint64_t>(map.words());
    to.end = to.begin + kBytes;
    to.generation = generation;
    to.state = shared_table::kFilled;
    process().mappings_used = std::max(process().mappings_used.load(), slot + 1);
  }

  const NumberFile file_{kBytes};
  const TestMapping map_{file_};
  SharedTableOwner keeper_{{.least_bytes = 1_MiB}};
  TableSource source_{keeper_};
  shared_table::SharedTable* board_ = nullptr;
};

TEST_F(TableSourceTest, SeesWhatIsWritten) {
  EXPECT_THAT(source_.look(), IsEmpty());
  write_mapping(0, map_, 7);
  const auto seen = source_.look();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].generation, 7u);
  EXPECT_EQ(seen[0].pid, ::getpid());
  EXPECT_EQ(seen[0].range.begin, reinterpret_cast<std::uint64_t>(map_.words()));
  EXPECT_EQ(seen[0].inode, board_->files[5].inode);
  EXPECT_EQ(source_.path(seen[0]), file_.path());
}

TEST_F(TableSourceTest, KeysAreOneForEach) {
  const TestMapping other(file_);
  write_mapping(0, map_, 1);
  write_mapping(1, other, 1);
  const auto seen = source_.look();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_NE(seen[0].key, seen[1].key);
  process().mappings[0].state = shared_table::kEmpty;
  const auto left = source_.look();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].key, seen[1].key);
}

TEST_F(TableSourceTest, AHeldMappingIsThereUntilItsGenerationChanges) {
  write_mapping(0, map_, 1);
  const auto held = source_.hold(source_.look().at(0));
  EXPECT_TRUE(held->still_there());
  EXPECT_THAT(held->name(), HasSubstr(file_.path()));
  write_mapping(0, map_, 2);
  EXPECT_FALSE(held->still_there());
  // Gone, not a failure: no order is even posted.
  EXPECT_EQ(held->let_go(held->range()), 0);
  EXPECT_EQ(process().order.posted.load(), 0u);
}

// A stopped program is no failure of the guard.
TEST_F(TableSourceTest, AnOrderThatNobodyTakesIsNoFailure) {
  write_mapping(0, map_, 1);
  const auto held = source_.hold(source_.look().at(0));
  EXPECT_EQ(held->let_go(held->range()), 0);
  EXPECT_EQ(process().order.posted.load(), 1u);
  EXPECT_EQ(process().order.kind, shared_table::kLetGo);
  EXPECT_EQ(process().order.begin, held->range().begin);
  EXPECT_EQ(held->let_go(held->range()), 0);  // the first one still waits
  EXPECT_EQ(process().order.posted.load(), 1u);
}

TEST_F(TableSourceTest, WhatTheProgramHasAdvisedIsLeftAlone) {
  write_mapping(0, map_, 1, shared_table::kShared | shared_table::kAdvised);
  const auto held = source_.hold(source_.look().at(0));
  EXPECT_EQ(held->advise(held->range(), MADV_RANDOM), 0);
  EXPECT_EQ(process().order.posted.load(), 0u);
}

TEST_F(TableSourceTest, CountsWhatIsResident) {
  write_mapping(0, map_, 1);
  const auto held = source_.hold(source_.look().at(0));
  EXPECT_EQ(wrong_in_scan(map_, file_.words()), 0u);
  AccessSample sample;
  ASSERT_TRUE(held->count_resident(held->range(), sample));
  EXPECT_EQ(sample.resident, kBytes / sys::page_size());
}

TEST_F(TableSourceTest, AFileThatIsReadHereAndThereIsMarkedForMappingsToCome) {
  write_mapping(0, map_, 1);
  const auto seen = source_.look();
  source_.set_random(seen.at(0), true);
  EXPECT_EQ(board_->files[5].random.load(), 1u);
  source_.set_random(seen.at(0), false);
  EXPECT_EQ(board_->files[5].random.load(), 0u);
}

TEST_F(TableSourceTest, NotesWhatThereWasNoRoomFor) {
  EXPECT_THAT(source_.notes(), IsEmpty());
  board_->lost = 3;
  EXPECT_THAT(source_.notes(), ElementsAre(HasSubstr("3 mappings, files or processes")));
}

// Numbers of programs are not to be trusted.
TEST_F(TableSourceTest, NonsenseIsNotSeen) {
  write_mapping(0, map_, 1);
  process().mappings[0].file = shared_table::kFiles + 5;
  EXPECT_THAT(source_.look(), IsEmpty());
  write_mapping(0, map_, 1);
  process().mappings[0].end = process().mappings[0].begin.load();
  EXPECT_THAT(source_.look(), IsEmpty());
  write_mapping(0, map_, 1);
  process().mappings_used = 0xffffffff;
  board_->processes_used = 0xffffffff;
  EXPECT_EQ(source_.look().size(), 1u);
}

}  // namespace
}  // namespace evenkeel
