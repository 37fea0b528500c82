// The preloaded library in unusual surroundings: no table, a wrong table, another libc, another
// allocator, another user, a program that it must leave alone.
#include <elf.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "tests/forked.h"
#include "tests/preload/preload_fixture.h"

namespace evenkeel {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSubsetOf;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

class PreloadSurroundings : public PreloadTest {
 protected:
  // Starts the program, which maps files and must work as without the library. Returns its stderr.
  std::string complaint(const std::string& variable, GuardedProgram::Options options = {}) {
    options.errors = folder.path("errors");
    std::filesystem::remove(options.errors);
    GuardedProgram program(variable, options);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(program.ask("check", program.map(path, kLength), kLength, 0), 0u);
    }
    program.ask("fork");
    EXPECT_EQ(program.ask("check", program.map(path, kLength), kLength, 0), 0u);
    EXPECT_EQ(program.ask("exit", 0), 0u);
    EXPECT_EQ(program.ask("threads"), 1u);
    EXPECT_EQ(program.exit(0), 0);
    return text_of(options.errors);
  }
  void works_with(const GuardedProgram::Options& options) {
    GuardedProgram program(owner.variable(), options);
    const std::uint64_t at = program.map(path, kLength);
    ASSERT_THAT(of(program), SizeIs(1));
    EXPECT_EQ(program.ask("check", at, kLength, 0), 0u);
    const auto answer = let_go(of(program)[0]);
    EXPECT_EQ(answer.error, 0);
    EXPECT_TRUE(answer.dropped);
    EXPECT_EQ(program.ask("resident", at, kLength), 0u);
    EXPECT_EQ(program.ask("storm", path, kMib, 50), 0u);
    program.ask("fork");
    const std::uint64_t child = program.ask("pid");
    ASSERT_THAT(of(child), SizeIs(1));
    EXPECT_EQ(let_go(of(child)[0]).error, 0);
    EXPECT_EQ(program.ask("exit", 6), 6u);
    EXPECT_EQ(program.ask("setuid"), 0u);
    EXPECT_EQ(program.ask("vfork exit 4"), 4u);
    program.ask("unmap", at, kLength);
    EXPECT_THAT(of(program), IsEmpty());
    program.tell("leave");
    EXPECT_EQ(program.wait(), 0);
  }
  // The variable, with a path that leads to a file of this name and content.
  std::string other_table(const char* name, const std::string& content) {
    other_ = Fd(::memfd_create(name, MFD_CLOEXEC));
    EXPECT_EQ(::write(other_.get(), content.data(), content.size()),
              static_cast<ssize_t>(content.size()));
    return "EVENKEEL_GUARD=/proc/" + std::to_string(::getpid()) + "/fd/" +
           std::to_string(other_.get());
  }
  static std::string line(const std::string& why) {
    return "evenkeel guard: " + why + "; this program runs unguarded\n";
  }

  const std::string path = numbers("numbers");
  Fd other_;
};

TEST_F(PreloadSurroundings, NoBoardIsNoMatter) { EXPECT_EQ(complaint(""), ""); }

TEST_F(PreloadSurroundings, AMissingBoardIsSaidOnce) {
  EXPECT_EQ(complaint("EVENKEEL_GUARD=/proc/0/fd/3"),
            line("the tool's shared memory cannot be reached (error 2)"));
  EXPECT_EQ(complaint("EVENKEEL_GUARD=" + std::string(300, 'x')),
            line("the tool's shared memory cannot be reached (error 2)"));
}

TEST_F(PreloadSurroundings, WhatIsNoBoardIsLeftAlone) {
  EXPECT_EQ(complaint("EVENKEEL_GUARD=" + path),
            line("the tool's shared memory cannot be reached (error 22)"));
  EXPECT_EQ(complaint(other_table("something", std::string(1000, 'x'))),
            line("EVENKEEL_GUARD does not name the tool's shared memory"));
  EXPECT_EQ(complaint(other_table(shared_table::kName, std::string(1000, 'x'))),
            line("EVENKEEL_GUARD does not name the tool's shared memory"));
  EXPECT_EQ(complaint(other_table(shared_table::kName, "x")),
            line("EVENKEEL_GUARD does not name the tool's shared memory"));
}

TEST_F(PreloadSurroundings, ATableOfAnotherVersionIsLeftAlone) {
  std::string head(64, 0);
  const std::uint32_t magic = shared_table::kMagic, version = shared_table::kVersion + 1;
  const std::uint64_t size = sizeof(shared_table::SharedTable);
  std::memcpy(head.data(), &magic, 4);
  std::memcpy(head.data() + 4, &version, 4);
  std::memcpy(head.data() + 8, &size, 8);
  EXPECT_EQ(complaint(other_table(shared_table::kName, head)),
            line("the tool has another version"));
}

TEST_F(PreloadSurroundings, NoRoomForAThread) {
  GuardedProgram::Options options;
  options.preload = EVENKEEL_NO_THREADS_LIBRARY ":" EVENKEEL_PRELOAD_LIBRARY;
  EXPECT_EQ(complaint(owner.variable(), options), line("no thread can be started (error 11)"));
  EXPECT_THAT(owner.mappings(), IsEmpty());
}

// The filter kills the process for any call that the library's thread makes when it begins or ends.
TEST_F(PreloadSurroundings, AThreadThatHasNotBegunIsWaitedForBeforeAFilter) {
  GuardedProgram::Options options;
  options.preload = EVENKEEL_LATE_THREAD_LIBRARY ":" EVENKEEL_PRELOAD_LIBRARY;
  GuardedProgram program(owner.variable(), options);
  const std::uint64_t at = program.map(path, kLength);
  ASSERT_EQ(program.ask("threads"), 2u);
  EXPECT_EQ(program.ask("sandbox"), 0u);
  EXPECT_EQ(program.ask("threads"), 1u);
  EXPECT_EQ(program.ask("check", at, kLength, 0), 0u);
  EXPECT_THAT(of(program), IsEmpty());
  EXPECT_EQ(program.exit(7), 7);
}

TEST_F(PreloadSurroundings, AThreadAtWorkIsWaitedForBeforeAFilter) {
  GuardedProgram program(owner.variable());
  const std::uint64_t at = program.map(path, kLength, PROT_READ | PROT_WRITE);
  EXPECT_EQ(program.ask("fill", at, kLength, 1), 0u);
  const TableEntry mapping = of(program).at(0);
  ASSERT_EQ(owner.start_command(mapping, mapping.begin, mapping.end, shared_table::kPageOut), 0);
  std::thread tool([&] { owner.finish_command(mapping, std::chrono::hours(1)); });
  EXPECT_EQ(program.ask("sandbox"), 0u);
  EXPECT_EQ(program.ask("threads"), 1u);
  tool.join();
  EXPECT_EQ(program.ask("check", at, kLength, 1), 0u);
  EXPECT_EQ(program.exit(7), 7);
}

// For each of these, the kernel requires a process without other threads. 100 is CLONE_VM.
TEST_F(PreloadSurroundings, TheThreadEndsForWhatNeedsAProcessWithoutThreads) {
  GuardedProgram plain("");
  for (const std::string call : {"unshare 100", "setns mnt", "setns time"}) {
    GuardedProgram program(owner.variable());
    const std::uint64_t at = program.map(path, kLength);
    ASSERT_EQ(program.ask("threads"), 2u);
    const std::string answer = plain.ask_text(call);  // containers may forbid it
    EXPECT_EQ(program.ask_text(call), answer) << call;
    EXPECT_EQ(program.ask("check", at, kLength, 0), 0u);
    if (answer != "0") continue;
    EXPECT_EQ(program.ask("threads"), 1u) << call;
    EXPECT_THAT(of(program), IsEmpty()) << call;
  }
}

TEST_F(PreloadSurroundings, TheThreadGoesOnIfSuchACallFailsForAnotherReason) {
  GuardedProgram plain(""), program(owner.variable());
  program.map(path, kLength);
  EXPECT_EQ(program.ask_text("unshare 1"), plain.ask_text("unshare 1")) << "no such flag";
  EXPECT_EQ(program.ask("threads"), 2u);
  EXPECT_EQ(program.ask("idle"), 0u);
  EXPECT_EQ(plain.ask("idle"), 0u);
  for (const std::string call : {"unshare 100", "unshare 10000000", "setns user", "setns mnt"}) {
    EXPECT_EQ(program.ask_text(call), plain.ask_text(call)) << call;
  }
  EXPECT_EQ(program.ask("threads"), 3u);
  ASSERT_THAT(of(program), SizeIs(1));
  EXPECT_EQ(let_go(of(program)[0]).error, 0);
}

TEST_F(PreloadSurroundings, AnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "this is another user already";
  folder.open_to_everyone();
  GuardedProgram::Options options;
  options.program = folder.path("program");
  options.preload = folder.path("library.so");
  std::filesystem::copy_file(EVENKEEL_PRELOAD_PROGRAM, options.program);
  std::filesystem::copy_file(EVENKEEL_PRELOAD_LIBRARY, options.preload);
  ::chmod(path.c_str(), 0644);
  const std::string said = in_child([&]() -> std::string {
    // Others may open a process that has changed its user only if it allows that.
    if (!become_nobody() || ::prctl(PR_SET_DUMPABLE, 1) != 0) return "still root";
    SharedTableOwner own({.least_bytes = kMib});
    GuardedProgram program(own.variable(), options);
    const std::uint64_t at = program.map(path, kLength);
    if (program.ask("check", at, kLength, 0) != 0) return "wrong numbers";
    const auto found = own.mappings();
    if (found.size() != 1) return "not told of";
    const int error = own.release(found[0], at, at + kLength, std::chrono::seconds(20)).error;
    if (error != 0) return "error " + std::to_string(error);
    return program.ask("resident", at, kLength) == 0 ? "let go" : "still there";
  });
  EXPECT_EQ(said, "let go");
}

TEST_F(PreloadSurroundings, AnotherLibc) {
  if (!std::filesystem::exists(EVENKEEL_PRELOAD_MUSL_PROGRAM)) GTEST_SKIP() << "no musl-gcc";
  GuardedProgram::Options options;
  options.program = EVENKEEL_PRELOAD_MUSL_PROGRAM;
  works_with(options);
}

TEST_F(PreloadSurroundings, AnotherAllocator) {
  for (const char* name : {"/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
                           "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2"}) {
    if (!std::filesystem::exists(name)) continue;
    GuardedProgram::Options options;
    options.preload = EVENKEEL_PRELOAD_LIBRARY ":" + std::string(name);
    works_with(options);
    options.preload = std::string(name) + ":" EVENKEEL_PRELOAD_LIBRARY;
    works_with(options);
    return;
  }
  GTEST_SKIP() << "no libjemalloc2";
}

TEST_F(PreloadSurroundings, ASetuidProgramIsLeftAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make one";
  const std::string copy = folder.path("setuid_program");
  std::filesystem::copy_file(EVENKEEL_PRELOAD_PROGRAM, copy);
  ASSERT_EQ(::chown(copy.c_str(), 65534, 65534), 0);
  ASSERT_EQ(::chmod(copy.c_str(), 04755), 0);
  folder.open_to_everyone();
  ::chmod(path.c_str(), 0644);
  GuardedProgram::Options options;
  options.program = copy;
  EXPECT_EQ(complaint(owner.variable(), options), "");
  EXPECT_THAT(owner.mappings(), IsEmpty());
}

struct Symbols {
  std::vector<std::string> defined, needed;
  int libraries = 0, versions = 0;
};

Symbols symbols_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const auto at = [&]<class T>(T, std::uint64_t offset) {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  };
  Symbols symbols;
  const auto head = at(Elf64_Ehdr{}, 0);
  for (int i = 0; i < head.e_shnum; ++i) {
    const auto section = at(Elf64_Shdr{}, head.e_shoff + i * sizeof(Elf64_Shdr));
    const std::uint64_t end = section.sh_offset + section.sh_size;
    if (section.sh_type == SHT_GNU_verneed || section.sh_type == SHT_GNU_verdef) {
      ++symbols.versions;
    }
    if (section.sh_type == SHT_DYNAMIC) {
      for (std::uint64_t o = section.sh_offset; o < end; o += sizeof(Elf64_Dyn)) {
        symbols.libraries += at(Elf64_Dyn{}, o).d_tag == DT_NEEDED;
      }
    }
    if (section.sh_type != SHT_DYNSYM) continue;
    const auto names = at(Elf64_Shdr{}, head.e_shoff + section.sh_link * sizeof(Elf64_Shdr));
    for (std::uint64_t o = section.sh_offset + sizeof(Elf64_Sym); o < end; o += sizeof(Elf64_Sym)) {
      const auto symbol = at(Elf64_Sym{}, o);
      (symbol.st_shndx == SHN_UNDEF ? symbols.needed : symbols.defined)
          .push_back(bytes.data() + names.sh_offset + symbol.st_name);
    }
  }
  return symbols;
}

TEST_F(PreloadSurroundings, TheLibraryBringsNothingAlong) {
  const Symbols symbols = symbols_of(EVENKEEL_PRELOAD_LIBRARY);
  EXPECT_EQ(symbols.libraries, 0);
  EXPECT_EQ(symbols.versions, 0);
  EXPECT_THAT(
      symbols.defined,
      UnorderedElementsAre("mmap", "mmap64", "mremap", "munmap", "mprotect", "pkey_mprotect",
                           "madvise", "posix_madvise", "remap_file_pages", "shmat", "umount",
                           "umount2", "prctl", "setns", "unshare", "fork"));
  EXPECT_THAT(symbols.needed,
              IsSubsetOf({"dlsym", "dlerror", "__fork", "getenv", "getauxval", "pthread_create",
                          "pthread_detach", "pthread_attr_init", "pthread_attr_destroy",
                          "pthread_attr_setstacksize", "syscall", "__errno_location", "memcpy",
                          "memset", "memcmp"}));
}

}  // namespace
}  // namespace evenkeel
