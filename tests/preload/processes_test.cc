// The preloaded library across fork, exec and the ends of threads and processes.
#include <sys/file.h>
#include <sys/stat.h>

#include "tests/preload/preload_fixture.h"

namespace evenkeel {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class PreloadProcesses : public PreloadTest {
 protected:
  GuardedProgram program{owner.variable()};
  const std::string path = numbers("numbers");
};

TEST_F(PreloadProcesses, AForkedChildAnswersForItself) {
  const std::uint64_t at = program.map(path, kLength);
  ASSERT_EQ(program.ask("fork"), 0u);  // from now on, the child answers
  const std::uint64_t child = program.ask("pid");
  ASSERT_NE(child, static_cast<std::uint64_t>(program.pid()));
  ASSERT_THAT(of(child), SizeIs(1));
  ASSERT_THAT(of(program), SizeIs(1));
  EXPECT_EQ(of(child)[0].begin, at);
  EXPECT_EQ(program.ask("check", at, kLength, 0), 0u);
  EXPECT_EQ(let_go(of(child)[0]).error, 0);
  EXPECT_EQ(program.ask("resident", at, kLength), 0u);
  EXPECT_EQ(let_go(of(program)[0]).error, 0) << "the parent, too";
  program.ask("unmap", at, kLength);
  EXPECT_THAT(of(child), IsEmpty());
  EXPECT_THAT(of(program), SizeIs(1));
  EXPECT_EQ(program.ask("exit", 5), 5u);
  EXPECT_THAT(of(child), IsEmpty());
  EXPECT_EQ(let_go(of(program)[0]).error, 0);
}

TEST_F(PreloadProcesses, AForkedChildWithoutMappingsHasNoThread) {
  program.ask("unmap", program.map(path, kLength), kLength);
  EXPECT_EQ(program.ask("threads"), 2u);
  program.ask("fork");
  EXPECT_EQ(program.ask("threads"), 1u);
  program.map(path, kLength);
  EXPECT_EQ(program.ask("threads"), 2u);
  EXPECT_EQ(let_go(of(program.ask("pid")).at(0)).error, 0);
}

TEST_F(PreloadProcesses, AChildNotMadeByForkIsNoticed) {
  for (const char* how : {"clone", "_Fork"}) {
    const std::uint64_t at = program.map(path, kLength);
    ASSERT_EQ(program.ask(how), 0u);
    const std::uint64_t child = program.ask("pid");
    EXPECT_THAT(of(child), IsEmpty());
    const std::uint64_t other = program.map(path, kLength, PROT_READ, MAP_PRIVATE);
    ASSERT_THAT(of(child), SizeIs(2)) << "what it has inherited, and what it has mapped";
    program.ask("unmap", at, kLength);
    ASSERT_THAT(of(child), SizeIs(1));
    EXPECT_EQ(of(child)[0].begin, other);
    EXPECT_EQ(let_go(of(child)[0]).error, 0);
    EXPECT_EQ(program.ask("exit", 0), 0u);
    ASSERT_THAT(of(program), SizeIs(1)) << how;
    EXPECT_EQ(let_go(of(program)[0]).error, 0);
    program.ask("unmap", at, kLength);
  }
}

TEST_F(PreloadProcesses, ChildrenThatBecomeOtherPrograms) {
  const std::uint64_t at = program.map(path, kLength);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(program.ask("vfork exit 7"), 7u);
    EXPECT_EQ(program.ask("spawn exit 8"), 8u);
  }
  ASSERT_THAT(owner.mappings(), SizeIs(1));
  EXPECT_EQ(let_go(of(program)[0]).error, 0);
  EXPECT_EQ(program.ask("check", at, kLength, 0), 0u);
}

// The child shares the memory of its parent, and must not end the guarding of the parent.
TEST_F(PreloadProcesses, AChildByVforkThatGivesUpPrivileges) {
  program.map(path, kLength);
  ASSERT_EQ(let_go(of(program).at(0)).error, 0);
  EXPECT_EQ(program.ask("vfork_nnp exit 7"), 7u);
  ASSERT_THAT(of(program), SizeIs(1));
  EXPECT_EQ(let_go(of(program)[0]).error, 0);
  EXPECT_EQ(owner.lost().sandboxed, 0u);
}

TEST_F(PreloadProcesses, BecomingAnotherProgram) {
  program.map(path, kLength);
  const TableEntry before = of(program).at(0);
  ASSERT_EQ(let_go(before).error, 0);
  program.tell("exec");
  EXPECT_EQ(program.ask_text("say hello"), "hello");
  EXPECT_EQ(let_go(before).error, ESTALE) << "nobody is there to answer, and that is noticed";
  EXPECT_THAT(of(program), IsEmpty());
  const std::uint64_t at = program.map(path, kLength);
  ASSERT_THAT(of(program), SizeIs(1));
  EXPECT_EQ(of(program)[0].begin, at);
  EXPECT_EQ(let_go(of(program)[0]).error, 0);
  EXPECT_EQ(owner.mappings().size(), 1u);
}

TEST_F(PreloadProcesses, AForkedChildThatExecsBeforeItsThreadBegins) {
  GuardedProgram::Options options;
  options.preload = EVENKEEL_LATE_THREAD_LIBRARY ":" EVENKEEL_PRELOAD_LIBRARY;
  GuardedProgram late(owner.variable(), options);
  late.map(path, kLength);
  ASSERT_EQ(late.ask("fork"), 0u);
  const std::uint64_t child = late.ask("pid");
  ASSERT_THAT(of(child), SizeIs(1));
  late.tell("exec");
  EXPECT_EQ(late.ask("threads"), 1u);
  EXPECT_TRUE(soon([&] { return of(child).empty(); })) << "another program has the process";
  late.map(path, kLength);
  EXPECT_THAT(of(child), SizeIs(1)) << "its own";
}

TEST_F(PreloadProcesses, ExecTakesTheOldSlotOver) {
  program.map(path, kLength);
  const std::uint32_t slot = of(program).at(0).process;
  program.tell("exec");
  program.map(path, kLength, PROT_READ, MAP_PRIVATE);  // before the tool has read the table
  ASSERT_THAT(of(program), SizeIs(1));
  EXPECT_EQ(of(program)[0].process, slot);
  EXPECT_FALSE(of(program)[0].shared);
}

TEST_F(PreloadProcesses, EntriesOfEndedOnesAreUsedAgain) {
  for (int i = 0; i < 50; ++i) {
    program.ask("fork");
    program.map(path, kLength);
    const auto found = of(program.ask("pid"));
    ASSERT_THAT(found, SizeIs(1)) << i;
    EXPECT_LT(found[0].process, 4u);
    ASSERT_EQ(program.ask("exit", 0), 0u);
  }
  EXPECT_THAT(owner.mappings(), IsEmpty());
  EXPECT_EQ(owner.lost().processes, 0u);
}

TEST_F(PreloadProcesses, AMainThreadThatLeaves) {
  const std::uint64_t at = program.map(path, kLength);
  program.tell("leave");
  EXPECT_EQ(program.ask_text("say hello"), "hello");
  EXPECT_EQ(let_go(of(program).at(0)).error, 0) << "the others still are there";
  EXPECT_EQ(program.ask("check", at, kLength, 0), 0u);
  program.map(path, kLength, PROT_READ, MAP_PRIVATE);
  ASSERT_THAT(of(program), SizeIs(2));
  for (const TableEntry& mapping : of(program)) EXPECT_EQ(let_go(mapping).error, 0);
  EXPECT_EQ(program.wait(), 0) << "with the last of the program's threads the process ends";
}

// As above, but the first mapping is made after the main thread has ended.
TEST_F(PreloadProcesses, AMainThreadThatHasLeft) {
  program.tell("leave");
  EXPECT_EQ(program.ask_text("say hello"), "hello");
  const std::uint64_t at = program.map(path, kLength);
  ASSERT_THAT(of(program), SizeIs(1));
  EXPECT_EQ(let_go(of(program)[0]).error, 0);
  EXPECT_EQ(program.ask("check", at, kLength, 0), 0u);
  EXPECT_EQ(program.wait(), 0);
}

TEST_F(PreloadProcesses, TheThreadIsQuietAndNamed) {
  EXPECT_EQ(program.ask("threads"), 1u);
  program.map(path, kLength);
  EXPECT_EQ(program.ask("threads"), 2u);
  const std::string tasks = "/proc/" + std::to_string(program.pid()) + "/task";
  std::string name, blocked;
  ASSERT_TRUE(soon([&] {
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      if (task.path().filename() == std::to_string(program.pid())) continue;
      name = text_of(task.path() / "comm");
      const std::string status = text_of(task.path() / "status");
      blocked = status.substr(status.find("SigBlk:\t") + 8, 16);
    }
    return name == "evenkeel-guard\n";
  })) << name;
  // All signals except 32, 33, 34 of the C library, and the two that cannot be blocked.
  EXPECT_EQ(blocked, "fffffffc7ffbfeff");
}

TEST_F(PreloadProcesses, SettingTheUserReachesAllThreads) {
  program.map(path, kLength);
  EXPECT_EQ(program.ask("setuid"), 0u);
  EXPECT_EQ(let_go(of(program).at(0)).error, 0);
}

TEST_F(PreloadProcesses, ClosingEverything) {
  const std::uint64_t open = program.ask("descriptors");
  program.map(path, kLength);
  EXPECT_EQ(let_go(of(program).at(0)).error, 0);
  EXPECT_EQ(program.ask("descriptors"), open) << "none is the library's";
  program.ask("close_all");
  EXPECT_EQ(let_go(of(program).at(0)).error, 0);
  program.map(path, kLength, PROT_READ, MAP_PRIVATE);
  for (const TableEntry& mapping : of(program)) EXPECT_EQ(let_go(mapping).error, 0);
}

TEST_F(PreloadProcesses, RecordLocksSurvive) {
  const auto is_locked = [&] {
    struct flock whole {};
    whole.l_type = F_WRLCK;
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    ::fcntl(fd, F_GETLK, &whole);
    ::close(fd);
    return whole.l_type != F_UNLCK && whole.l_pid == program.pid();
  };
  // After the program's own open and close of the file, which drop its locks.
  const std::uint64_t at = program.map(path, kLength, PROT_READ | PROT_WRITE);
  program.ask("lock", path);
  ASSERT_TRUE(is_locked());
  EXPECT_EQ(let_go(of(program).at(0)).error, 0);
  EXPECT_TRUE(is_locked());
  program.ask("remap", at, kLength, 2 * kLength, MREMAP_MAYMOVE, 0);
  program.ask("fork");
  EXPECT_EQ(let_go(of(program.ask("pid")).at(0)).error, 0);
  EXPECT_EQ(program.ask("exit", 0), 0u);
  EXPECT_TRUE(is_locked());
  program.ask("unmap", of(program).at(0).begin, kLength);
  EXPECT_TRUE(is_locked());
}

TEST_F(PreloadProcesses, ErrnoIsTheProgramsOwn) {
  EXPECT_EQ(program.ask("error", path), 77u);
  EXPECT_EQ(program.ask_text("map /nowhere 100000 0 1 1 0"), "!9") << "EBADF";
}

TEST_F(PreloadProcesses, SignalHandlersMapAndUnmap) {
  program.ask("handler", path);
  std::ostringstream line;
  line << std::hex << "storm " << path << " " << kMib << " " << 300;
  program.tell(line.str());
  std::atomic<bool> over{false};
  std::thread rain([&] {
    while (!over) {
      for (const TableEntry& mapping : of(program)) let_go(mapping);
    }
  });
  EXPECT_EQ(program.answer(), "0");
  over = true;
  rain.join();
}

TEST_F(PreloadProcesses, TheToolMayEnd) {
  auto mortal = std::make_unique<SharedTableOwner>(SharedTableOwner::Options{.least_bytes = kMib});
  GuardedProgram other(mortal->variable());
  const std::uint64_t at = other.map(path, kLength);
  mortal.reset();
  other.map(path, kLength);
  EXPECT_EQ(other.ask("check", at, kLength, 0), 0u);
  EXPECT_EQ(other.exit(0), 0);
}

}  // namespace
}  // namespace evenkeel
