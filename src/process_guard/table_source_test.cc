#include "process_guard/table_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "evenkeel/bytes.h"
#include "guard/test_mapping.h"

namespace evenkeel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kFileBytes = 8_MiB;

// This process plays the program: it writes the table through a second mapping of the same memory.
// Nothing carries out commands.
class TableSourceTest : public testing::Test {
 protected:
  TableSourceTest() {
    const std::string variable = owner_.variable();
    const std::string path = variable.substr(variable.find('=') + 1);
    const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    void* at = ::mmap(nullptr, sizeof(shared_table::SharedTable), PROT_READ | PROT_WRITE,
                      MAP_SHARED, fd.get(), 0);
    if (at == MAP_FAILED) throw std::runtime_error("mmap " + path);
    table_ = static_cast<shared_table::SharedTable*>(at);
    mappings_ = static_cast<shared_table::Mapping*>(
        ::mmap(nullptr, sizeof(shared_table::MappingArray), PROT_READ | PROT_WRITE, MAP_SHARED,
               fd.get(), static_cast<off_t>(shared_table::mappings_offset(0))));
    write_file();
    fill_process(0);
    table_->processes_used = 1;
  }
  ~TableSourceTest() override {
    ::munmap(table_, sizeof(shared_table::SharedTable));
    ::munmap(mappings_, sizeof(shared_table::MappingArray));
  }

  shared_table::Process& process() { return table_->processes[0]; }

  void fill_process(std::uint32_t index) {
    shared_table::Process& process = table_->processes[index];
    process.pid = static_cast<std::uint32_t>(::getpid());
    process.thread = static_cast<std::uint32_t>(::gettid());
    process.state = shared_table::kFilled;
  }

  void write_file() {
    struct stat status;
    ::fstat(file_.fd(), &status);
    shared_table::File& to = table_->files[5];
    to.device = status.st_dev;
    to.inode = status.st_ino;
    to.path_length = static_cast<std::uint32_t>(file_.path().size());
    std::memcpy(to.path, file_.path().data(), file_.path().size());
    to.state = shared_table::kFilled;
  }
  void write_mapping(std::uint32_t slot, const TestMapping& map, std::uint32_t generation,
                     std::uint32_t flags = shared_table::kShared) {
    write_mapping(mappings_[slot], map, generation, flags);
    process().mappings_used = std::max(process().mappings_used.load(), slot + 1);
  }
  static void write_mapping(shared_table::Mapping& to, const TestMapping& map,
                            std::uint32_t generation, std::uint32_t flags = shared_table::kShared) {
    to.file = 5;
    to.flags = flags;
    to.begin = reinterpret_cast<std::uint64_t>(map.words());
    to.end = to.begin + kFileBytes;
    to.generation = generation;
    to.state = shared_table::kFilled;
  }

  const NumberFile file_{kFileBytes};
  const TestMapping map_{file_};
  SharedTableOwner owner_{{.least_bytes = 1_MiB}};
  TableSource source_{owner_};
  shared_table::SharedTable* table_ = nullptr;
  shared_table::Mapping* mappings_ = nullptr;  // of process 0
};

TEST_F(TableSourceTest, SeesMappings) {
  EXPECT_THAT(source_.observe(), IsEmpty());
  write_mapping(0, map_, 7);
  const auto seen = source_.observe();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].generation, 7u);
  EXPECT_EQ(seen[0].pid, ::getpid());
  EXPECT_EQ(seen[0].range.begin, reinterpret_cast<std::uint64_t>(map_.words()));
  EXPECT_EQ(seen[0].inode, table_->files[5].inode);
  EXPECT_EQ(source_.path(seen[0]), file_.path());
}

TEST_F(TableSourceTest, KeysAreUniqueAndStable) {
  const TestMapping other(file_);
  write_mapping(0, map_, 1);
  write_mapping(1, other, 1);
  const auto seen = source_.observe();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_NE(seen[0].key, seen[1].key);
  mappings_[0].state = shared_table::kEmpty;
  const auto left = source_.observe();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].key, seen[1].key);
}

TEST_F(TableSourceTest, AMappingIsThereUntilItsGenerationChanges) {
  write_mapping(0, map_, 1);
  const auto mapping = source_.make_guarded(source_.observe().at(0), true);
  EXPECT_TRUE(mapping->still_there());
  EXPECT_THAT(mapping->name(), HasSubstr(file_.path()));
  write_mapping(0, map_, 2);
  EXPECT_FALSE(mapping->still_there());
  // That is no failure, and no command is posted.
  EXPECT_EQ(mapping->let_go(mapping->range()), 0);
  EXPECT_EQ(process().command.posted.load(), 0u);
}

// The program may be stopped.
TEST_F(TableSourceTest, ACommandThatIsNotCarriedOutIsNoFailure) {
  write_mapping(0, map_, 1);
  const auto mapping = source_.make_guarded(source_.observe().at(0), true);
  EXPECT_EQ(mapping->let_go(mapping->range()), 0);
  EXPECT_EQ(process().command.posted.load(), 1u);
  EXPECT_EQ(process().command.kind, shared_table::kRelease);
  EXPECT_EQ(process().command.ranges[0].begin, mapping->range().begin);
  EXPECT_EQ(mapping->let_go(mapping->range()), 0);  // the first command is not answered yet
  EXPECT_EQ(process().command.posted.load(), 1u);
}

// One command has room for 32 ranges. When the command of one process is full, it is carried out at
// once; the commands of other processes wait for more ranges.
TEST_F(TableSourceTest, AFullCommandDoesNotPostThatOfAnotherProcess) {
  const std::string variable = owner_.variable();
  const Fd fd(::open(variable.substr(variable.find('=') + 1).c_str(), O_RDWR | O_CLOEXEC));
  auto* of_other = static_cast<shared_table::Mapping*>(
      ::mmap(nullptr, sizeof(shared_table::MappingArray), PROT_READ | PROT_WRITE, MAP_SHARED,
             fd.get(), static_cast<off_t>(shared_table::mappings_offset(1))));
  ASSERT_NE(of_other, MAP_FAILED);
  fill_process(1);
  table_->processes[1].mappings_used = 1;
  table_->processes_used = 2;
  write_mapping(0, map_, 1);
  write_mapping(*of_other, map_, 1);
  const auto seen = source_.observe();
  ASSERT_EQ(seen.size(), 2u);
  const auto one = source_.make_guarded(seen[0], true), other = source_.make_guarded(seen[1], true);

  std::atomic<bool> over{false};
  std::uint32_t ranges[2] = {0, 0};
  std::thread programs([&] {  // both answer at once
    for (bool last = false; !last;) {
      last = over;
      for (const int i : {0, 1}) {
        shared_table::Command& command = table_->processes[i].command;
        const std::uint32_t posted = command.posted.load();
        if (posted == command.done.load()) continue;
        ranges[i] += command.count;
        command.done = posted;
      }
      std::this_thread::yield();
    }
  });
  constexpr std::uint32_t kMore = shared_table::kCommandRanges + 1;
  EXPECT_EQ(other->start_let_go(other->range()), 0);
  for (std::uint32_t i = 0; i < kMore; ++i) EXPECT_EQ(one->start_let_go(one->range()), 0);
  EXPECT_EQ(other->start_let_go(other->range()), 0);
  EXPECT_EQ(one->finish_let_go(), 0);
  EXPECT_EQ(other->finish_let_go(), 0);
  over = true;
  programs.join();
  EXPECT_GE(ranges[0], shared_table::kCommandRanges);  // on a busy machine the answer comes late
  EXPECT_EQ(ranges[1], 2u);
  ::munmap(of_other, sizeof(shared_table::MappingArray));
}

TEST_F(TableSourceTest, TheProgramsOwnAdviceIsLeftAlone) {
  write_mapping(0, map_, 1, shared_table::kShared | shared_table::kAdvised);
  const auto mapping = source_.make_guarded(source_.observe().at(0), true);
  EXPECT_EQ(mapping->advise(mapping->range(), MADV_RANDOM), 0);
  EXPECT_EQ(process().command.posted.load(), 0u);
}

TEST_F(TableSourceTest, CountsResidentPages) {
  write_mapping(0, map_, 1);
  const auto mapping = source_.make_guarded(source_.observe().at(0), true);
  EXPECT_EQ(wrong_in_scan(map_, file_.words()), 0u);
  AccessSample sample;
  ASSERT_TRUE(mapping->count_resident(mapping->range(), sample));
  EXPECT_EQ(sample.resident, kFileBytes / sys::page_size());
}

TEST_F(TableSourceTest, AFileThatIsReadAtRandomIsMarkedForFutureMappings) {
  write_mapping(0, map_, 1);
  const auto seen = source_.observe();
  source_.set_random(seen.at(0), true);
  EXPECT_EQ(table_->files[5].random.load(), 1u);
  source_.set_random(seen.at(0), false);
  EXPECT_EQ(table_->files[5].random.load(), 0u);
}

TEST_F(TableSourceTest, NotesEntriesThatDidNotFit) {
  EXPECT_THAT(source_.notes(), IsEmpty());
  table_->lost_mappings = 3000;
  EXPECT_THAT(source_.notes(),
              ElementsAre("3,000 mappings cannot be guarded: the guard has room for 65,536 of a "
                          "process"));
  table_->lost_processes = 1;
  table_->lost_files = 2;
  EXPECT_THAT(source_.notes(), ElementsAre(HasSubstr("1 process cannot"),
                                           HasSubstr("2 mapped files cannot"), HasSubstr("3,000")));
  table_->lost_paths = 4;
  EXPECT_THAT(source_.notes(),
              testing::Contains("4 mapped files cannot be guarded: the paths are longer than 208 "
                                "bytes, and the guard's room for long paths is used up"));
}

// Numbers that programs write are not trusted.
TEST_F(TableSourceTest, InvalidEntriesAreIgnored) {
  write_mapping(0, map_, 1);
  mappings_[0].file = shared_table::kFiles + 5;
  EXPECT_THAT(source_.observe(), IsEmpty());
  write_mapping(0, map_, 1);
  mappings_[0].end = mappings_[0].begin.load();
  EXPECT_THAT(source_.observe(), IsEmpty());
  write_mapping(0, map_, 1);
  process().mappings_used = 0xffffffff;
  table_->processes_used = 0xffffffff;
  EXPECT_EQ(source_.observe().size(), 1u);
}

}  // namespace
}  // namespace evenkeel
