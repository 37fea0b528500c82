// Which mappings the preloaded library registers, how it follows the calls of the program, and what
// commands do.
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "tests/preload/preload_fixture.h"

namespace evenkeel {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class PreloadMappings : public PreloadTest {
 protected:
  std::vector<TableEntry> registered() { return of(program); }
  // Addresses relative to `at`, in pieces of 1 MiB, with the offset: "0-2@0 3-8@3".
  std::string ranges(std::uint64_t at) {
    std::string text;
    for (const TableEntry& mapping : registered()) {
      const auto place = [&](std::uint64_t address) {
        return std::to_string((static_cast<std::int64_t>(address) - static_cast<std::int64_t>(at)) /
                              static_cast<std::int64_t>(kMib));
      };
      text += (text.empty() ? "" : " ") + place(mapping.begin) + "-" + place(mapping.end) + "@" +
              std::to_string(mapping.offset / kMib);
    }
    return text;
  }
  std::uint64_t resident(std::uint64_t at, std::uint64_t length) {
    return program.ask("resident", at, length);
  }
  std::uint64_t wrong(std::uint64_t at, std::uint64_t length, std::uint64_t seed = 0) {
    return program.ask("check", at, length, seed);
  }
  // The line "VmFlags: rd mr mw me ms rr " of the mapping that begins there.
  std::string flags(std::uint64_t at) const {
    std::ostringstream begin;
    begin << std::hex << at << "-";
    std::ifstream in("/proc/" + std::to_string(program.pid()) + "/smaps");
    bool there = false;
    for (std::string line; std::getline(in, line);) {
      there |= line.starts_with(begin.str());
      if (there && line.starts_with("VmFlags:")) return line + " ";
    }
    return "";
  }

  GuardedProgram program{owner.variable()};
  const std::string path = numbers("numbers");
};

TEST_F(PreloadMappings, AFileIsRegistered) {
  const std::uint64_t at = program.map(path, kLength - 5 * 4096 + 1, PROT_READ, MAP_SHARED, 4096);
  const auto found = registered();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].begin, at);
  EXPECT_EQ(found[0].end, at + kLength - 4 * 4096) << "whole pages";
  EXPECT_EQ(found[0].offset, 4096u);
  EXPECT_TRUE(found[0].shared);
  EXPECT_FALSE(found[0].writable);
  EXPECT_FALSE(found[0].advised);
  const TableFile file = owner.file(found[0].file);
  struct stat status;
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(file.path, path);
  EXPECT_EQ(file.device, status.st_dev);
  EXPECT_EQ(file.inode, status.st_ino);
}

TEST_F(PreloadMappings, SharedAndWritableAreNoted) {
  program.map(path, kLength, PROT_READ | PROT_WRITE, MAP_SHARED);
  program.map(path, kLength, PROT_READ, MAP_PRIVATE);
  program.map(path, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  program.map(path, kLength, PROT_READ, MAP_SHARED_VALIDATE);
  std::vector<std::string> kinds;
  for (const TableEntry& mapping : registered()) {
    kinds.push_back(std::string(mapping.shared ? "s" : "p") + (mapping.writable ? "w" : "r"));
    EXPECT_EQ(mapping.file, registered()[0].file) << "one file, one entry";
  }
  EXPECT_THAT(kinds, ::testing::UnorderedElementsAre("sw", "pr", "pw", "sr"));
}

TEST_F(PreloadMappings, OthersAreNotRegistered) {
  program.map(path, kMib - 4096);
  program.map("-", kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  program.map("memfd", kLength);
  program.map(path, kLength, PROT_READ | PROT_EXEC, MAP_PRIVATE);
  program.map(path, kLength, PROT_READ, MAP_PRIVATE | MAP_STACK);
  program.map("/dev/zero", kLength, PROT_READ, MAP_PRIVATE);
  EXPECT_THAT(registered(), IsEmpty());
  program.map(path, kMib);
  EXPECT_THAT(registered(), SizeIs(1))
      << "the table is there, and this is the least that is registered";
}

// A file that is deleted before it is mapped: its pages take memory, too.
TEST_F(PreloadMappings, ADeletedFileIsRegistered) {
  const std::string gone = numbers("gone");
  const std::uint64_t at = program.map("gone:" + gone, kLength);
  const auto found = registered();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].begin, at);
  EXPECT_EQ(owner.file(found[0].file).path, gone);
  EXPECT_EQ(wrong(at, kLength), 0u);
  EXPECT_EQ(let_go(found[0]).error, 0);
  EXPECT_EQ(resident(at, kLength), 0u);
  EXPECT_EQ(wrong(at, kLength), 0u);
}

// The tool opens it by its new name.
TEST_F(PreloadMappings, ARenamedFileIsRegisteredByItsNewName) {
  const std::string renamed = folder.path("renamed"), linked = folder.path("linked");
  const auto path_of_only = [&] {
    const auto found = registered();
    return found.size() == 1 ? owner.file(found[0].file).path : "no single mapping";
  };
  std::uint64_t at = program.map(path, kLength);
  EXPECT_EQ(path_of_only(), path);
  program.ask("unmap", at, kLength);
  std::filesystem::rename(path, renamed);
  at = program.map(renamed, kLength);
  EXPECT_EQ(path_of_only(), renamed);
  program.ask("unmap", at, kLength);
  std::filesystem::create_hard_link(renamed, linked);
  at = program.map(linked, kLength);
  EXPECT_EQ(path_of_only(), linked);
  program.ask("unmap", at, kLength);
  program.map("gone:" + linked, kLength);
  EXPECT_EQ(path_of_only(), linked) << "a removed file has its last name";
}

TEST_F(PreloadMappings, LockedOnesAreNotRegistered) {
  const std::string answer = program.ask_text("map " + path + " 100000 0 1 2001 0");  // MAP_LOCKED
  if (answer[0] == '!') GTEST_SKIP() << "RLIMIT_MEMLOCK allows no MiB";
  EXPECT_THAT(registered(), IsEmpty());
}

TEST_F(PreloadMappings, UnmappingEndsIt) {
  const std::uint64_t at = program.map(path, kLength);
  program.ask("unmap", at, kLength);
  EXPECT_THAT(registered(), IsEmpty());
}

TEST_F(PreloadMappings, UnmappingPartsTrimsAndSplits) {
  const std::uint64_t at = program.map(path, kLength);
  program.ask("unmap", at + 2 * kMib, kMib);
  EXPECT_EQ(ranges(at), "0-2@0 3-8@3");
  program.ask("unmap", at, kMib);
  EXPECT_EQ(ranges(at), "1-2@1 3-8@3");
  program.ask("unmap", at + 7 * kMib, kMib);
  EXPECT_EQ(ranges(at), "1-2@1 3-7@3");
  program.ask("unmap", at + kMib, 3 * kMib);
  EXPECT_EQ(ranges(at), "4-7@4");
  EXPECT_EQ(let_go(registered().at(0)).error, 0);
  EXPECT_EQ(wrong(at + 4 * kMib, 3 * kMib, 4 * kMib / 8), 0u);
}

TEST_F(PreloadMappings, AnUnmapThatFailsChangesNothing) {
  const std::uint64_t at = program.map(path, kLength);
  EXPECT_EQ(program.ask_text("unmap " + std::to_string(1) + " 1000"), "!22");
  std::ostringstream line;
  line << std::hex << "unmap " << at + 1 << " " << kLength;
  EXPECT_EQ(program.ask_text(line.str()), "!22");
  EXPECT_EQ(ranges(at), "0-8@0");
  EXPECT_EQ(let_go(registered().at(0)).error, 0);
}

TEST_F(PreloadMappings, MappingOverItReplacesIt) {
  const std::uint64_t at = program.map(path, kLength);
  program.map("-", kMib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, 0,
              at + kMib);
  EXPECT_EQ(ranges(at), "0-1@0 2-8@2");
  program.map(path, 2 * kMib, PROT_READ, MAP_SHARED | MAP_FIXED, 4 * kMib, at + 5 * kMib);
  EXPECT_EQ(ranges(at), "0-1@0 2-5@2 5-7@4 7-8@7");
  program.ask("fill", at + kMib, kMib, 99);
  for (const TableEntry& mapping : registered()) EXPECT_EQ(let_go(mapping).error, 0);
  EXPECT_EQ(wrong(at + kMib, kMib, 99), 0u);
  EXPECT_EQ(wrong(at + 5 * kMib, 2 * kMib, 4 * kMib / 8), 0u);
}

TEST_F(PreloadMappings, ReplacingThatFailsChangesNothing) {
  const std::uint64_t at = program.map(path, kLength);
  std::ostringstream line;  // a length beyond the address space
  line << std::hex << "map - ffffffffffff0000 0 3 32 " << at;
  EXPECT_EQ(program.ask_text(line.str())[0], '!');
  EXPECT_EQ(ranges(at), "0-8@0");
}

TEST_F(PreloadMappings, ShrinkingGrowingAndMoving) {
  const std::uint64_t at = program.map(path, kLength);
  program.ask("remap", at, kLength, 4 * kMib, 0, 0);
  EXPECT_EQ(ranges(at), "0-4@0");
  const std::uint64_t grown = program.ask("remap", at, 4 * kMib, kLength, MREMAP_MAYMOVE, 0);
  EXPECT_EQ(ranges(grown), "0-8@0");
  const std::uint64_t place = program.map("-", 2 * kLength, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS);
  const std::uint64_t moved =
      program.ask("remap", grown, kLength, kLength, MREMAP_MAYMOVE | MREMAP_FIXED, place);
  EXPECT_EQ(moved, place);
  EXPECT_EQ(ranges(place), "0-8@0");
  EXPECT_EQ(wrong(place, kLength), 0u);
  EXPECT_EQ(let_go(registered().at(0)).error, 0);
  EXPECT_EQ(resident(place, kLength), 0u);
}

TEST_F(PreloadMappings, MovingAPartOverAnother) {
  const std::uint64_t at = program.map(path, kLength), other = program.map(path, kLength);
  program.ask("remap", at + 2 * kMib, kMib, kMib, MREMAP_MAYMOVE | MREMAP_FIXED, other + 4 * kMib);
  std::string text;
  for (const TableEntry& mapping : registered()) {
    const std::uint64_t base = mapping.begin >= at && mapping.begin < at + kLength ? at : other;
    text += (base == at ? "a" : "b") + std::to_string((mapping.begin - base) / kMib) + "@" +
            std::to_string(mapping.offset / kMib) + " ";
  }
  EXPECT_EQ(text, at < other ? "a0@0 a3@3 b0@0 b4@2 b5@5 " : "b0@0 b4@2 b5@5 a0@0 a3@3 ");
  for (const TableEntry& mapping : registered()) EXPECT_EQ(let_go(mapping).error, 0);
}

TEST_F(PreloadMappings, AMoveThatFailsChangesNothing) {
  const std::uint64_t place = program.map("-", 2 * kLength, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS);
  const std::uint64_t at = program.map(path, kLength, PROT_READ, MAP_SHARED | MAP_FIXED, 0, place);
  std::ostringstream line;  // without room to grow, and not allowed to move
  line << std::hex << "remap " << at << " " << kLength << " " << 2 * kLength << " 0 0";
  EXPECT_EQ(program.ask_text(line.str()), "!12");
  EXPECT_EQ(ranges(at), "0-8@0");
  EXPECT_EQ(let_go(registered().at(0)).error, 0);
}

TEST_F(PreloadMappings, DoublingAndLeavingTheOld) {
  const std::uint64_t at = program.map(path, kLength);
  const std::uint64_t twin = program.ask("remap", at + kMib, 0, kMib, MREMAP_MAYMOVE, 0);
  const auto found = registered();
  ASSERT_THAT(found, SizeIs(2));
  const TableEntry& second = found[found[0].begin == twin ? 0 : 1];
  EXPECT_EQ(second.begin, twin);
  EXPECT_EQ(second.end, twin + kMib);
  EXPECT_EQ(second.offset, kMib);
  for (const TableEntry& mapping : found) EXPECT_EQ(let_go(mapping).error, 0);

  std::ostringstream line;  // MREMAP_DONTUNMAP
  line << std::hex << "remap " << at << " " << kLength << " " << kLength << " 5 0";
  const std::string answer = program.ask_text(line.str());
  if (answer[0] == '!') GTEST_SKIP() << "this kernel does not keep the old place of a file mapping";
  EXPECT_THAT(registered(), SizeIs(3));
  for (const TableEntry& mapping : registered()) EXPECT_EQ(let_go(mapping).error, 0);
}

TEST_F(PreloadMappings, ProtectionIsFollowed) {
  const std::uint64_t at = program.map(path, kLength, PROT_READ, MAP_PRIVATE);
  program.ask("protect", at, kMib, PROT_READ | PROT_WRITE);
  ASSERT_THAT(registered(), SizeIs(1));
  EXPECT_TRUE(registered()[0].writable);
  program.ask("protect", at, kMib, PROT_READ);
  EXPECT_TRUE(registered()[0].writable) << "once writable is enough";
  program.ask("protect", at + 2 * kMib, kMib, PROT_READ | PROT_EXEC);
  EXPECT_EQ(ranges(at), "0-2@0 3-8@3") << "executable memory is left alone";

  const std::uint64_t other = program.map(path, kLength, PROT_READ, MAP_PRIVATE);
  program.ask("pkey", other, kMib, PROT_READ | PROT_WRITE);
  for (const TableEntry& mapping : registered()) EXPECT_TRUE(mapping.writable);
}

TEST_F(PreloadMappings, AdviceIsNoticed) {
  const std::uint64_t first = program.map(path, kLength), second = program.map(path, kLength),
                      third = program.map(path, kLength);
  program.ask("advise", first, kLength, MADV_RANDOM);
  program.ask("posix_advise", second, kLength, POSIX_MADV_SEQUENTIAL);
  program.ask("advise", third, kLength, MADV_WILLNEED);
  for (const TableEntry& mapping : registered()) {
    EXPECT_EQ(mapping.advised, mapping.begin != third) << (mapping.begin == first);
  }
}

TEST_F(PreloadMappings, OtherWaysToReplaceItAreNoticed) {
  const std::uint64_t at = program.map(path, kLength, PROT_READ | PROT_WRITE);
  program.ask("shmat", at + kMib, kMib);
  EXPECT_EQ(ranges(at), "0-1@0 2-8@2");
  program.ask("fill", at + kMib, kMib, 5);
  program.ask("reorder", at + 4 * kMib, kMib, 0);
  EXPECT_EQ(ranges(at), "0-1@0 2-4@2 5-8@5");
  for (const TableEntry& mapping : registered()) EXPECT_EQ(let_go(mapping).error, 0);
  EXPECT_EQ(wrong(at + kMib, kMib, 5), 0u);
}

TEST_F(PreloadMappings, LettingGoOfShared) {
  const std::uint64_t at = program.map(path, kLength);
  EXPECT_EQ(wrong(at, kLength), 0u);
  EXPECT_EQ(resident(at, kLength), kLength / 4096);
  const auto half =
      owner.release(registered().at(0), at, at + kLength / 2, std::chrono::seconds(20));
  EXPECT_EQ(half.error, 0);
  EXPECT_TRUE(half.dropped);
  EXPECT_EQ(resident(at, kLength), kLength / 2 / 4096);
  EXPECT_EQ(let_go(registered().at(0)).error, 0);
  EXPECT_EQ(resident(at, kLength), 0u);
  EXPECT_EQ(wrong(at, kLength), 0u);
}

TEST_F(PreloadMappings, LettingGoOfPrivateNeverWritten) {
  const std::uint64_t at = program.map(path, kLength, PROT_READ, MAP_PRIVATE);
  EXPECT_EQ(wrong(at, kLength), 0u);
  EXPECT_TRUE(let_go(registered().at(0)).dropped);
  EXPECT_EQ(resident(at, kLength), 0u);
}

TEST_F(PreloadMappings, DirtySharedPagesSurvive) {
  const std::uint64_t at = program.map(path, kLength, PROT_READ | PROT_WRITE);
  program.ask("fill", at, kLength, 1234);
  EXPECT_TRUE(let_go(registered().at(0)).dropped);
  EXPECT_EQ(resident(at, kLength), 0u);
  EXPECT_EQ(wrong(at, kLength, 1234), 0u);
}

TEST_F(PreloadMappings, PrivateChangesSurvive) {
  const std::uint64_t at = program.map(path, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  program.ask("fill", at, kLength / 2, 77);
  EXPECT_FALSE(let_go(registered().at(0)).dropped);
  EXPECT_EQ(wrong(at, kLength / 2, 77), 0u);

  // Written while it was writable, and read-only now.
  const std::uint64_t later = program.map(path, kLength, PROT_READ, MAP_PRIVATE);
  program.ask("protect", later, kLength, PROT_READ | PROT_WRITE);
  program.ask("fill", later, kLength, 78);
  program.ask("protect", later, kLength, PROT_READ);
  for (const TableEntry& mapping : registered()) EXPECT_FALSE(let_go(mapping).dropped);
  EXPECT_EQ(wrong(later, kLength, 78), 0u);
}

TEST_F(PreloadMappings, MemoryThatIsAnothersByNowIsNotTouched) {
  const std::uint64_t at = program.map(path, kLength);
  const TableEntry before = registered().at(0);
  program.ask("raw_unmap", at, kLength);  // bypasses the hooks
  program.ask("raw_anon", at, kLength);
  program.ask("fill", at, kLength, 42);
  EXPECT_EQ(let_go(before).error, ESTALE);
  EXPECT_EQ(wrong(at, kLength, 42), 0u);
  EXPECT_THAT(registered(), IsEmpty());
}

TEST_F(PreloadMappings, AnotherPartOfTheFileIsNotTheSame) {
  const std::uint64_t at = program.map(path, kLength);
  program.ask("raw_unmap", at + kMib, kMib);  // a hole in the middle
  EXPECT_EQ(let_go(registered().at(0)).error, ESTALE);
}

TEST_F(PreloadMappings, OldOrdersAreStale) {
  const std::uint64_t at = program.map(path, kLength);
  const TableEntry before = registered().at(0);
  program.ask("unmap", at, kLength);
  EXPECT_EQ(let_go(before).error, ESTALE);
  program.map(path, kLength, PROT_READ, MAP_SHARED | MAP_FIXED, 0, at);  // the same again
  EXPECT_EQ(let_go(before).error, ESTALE);
  EXPECT_EQ(let_go(registered().at(0)).error, 0);
}

TEST_F(PreloadMappings, OrdersBeyondTheMappingAreRefused) {
  const std::uint64_t at = program.map(path, kLength);
  const TableEntry mapping = registered().at(0);
  const auto release = [&](std::uint64_t begin, std::uint64_t end) {
    return owner.release(mapping, begin, end, std::chrono::seconds(20)).error;
  };
  EXPECT_EQ(release(at, at + kLength + 4096), ESTALE);
  EXPECT_EQ(release(at - 4096, at + 4096), ESTALE);
  EXPECT_EQ(release(at + 1, at + 4096), EINVAL);
  EXPECT_EQ(release(at + 4096, at), EINVAL);
  EXPECT_EQ(owner.advise(mapping, at, at + kLength, MADV_DONTNEED, std::chrono::seconds(20)).error,
            EINVAL);
  EXPECT_EQ(release(at, at + kLength), 0);
}

TEST_F(PreloadMappings, AdviceIsGiven) {
  const std::uint64_t at = program.map(path, kLength);
  const TableEntry mapping = registered().at(0);
  const auto advise = [&](int advice) {
    return owner.advise(mapping, at, at + kLength, advice, std::chrono::seconds(20)).error;
  };
  EXPECT_EQ(advise(MADV_RANDOM), 0);
  EXPECT_THAT(flags(at), ::testing::HasSubstr(" rr "));
  EXPECT_EQ(advise(MADV_NORMAL), 0);
  EXPECT_THAT(flags(at), ::testing::Not(::testing::HasSubstr(" rr ")));
  EXPECT_FALSE(registered()[0].advised) << "that was not the program";

  owner.set_random(mapping.file, mapping.file_generation, true);
  const std::uint64_t later = program.map(path, kLength, PROT_READ, MAP_PRIVATE);
  EXPECT_THAT(flags(later), ::testing::HasSubstr(" rr "));

  SharedTableOwner sequential({.least_bytes = kMib, .first_advice = MADV_SEQUENTIAL});
  GuardedProgram other(sequential.variable());
  const std::uint64_t there = other.map(path, kLength);
  std::ifstream in("/proc/" + std::to_string(other.pid()) + "/smaps");
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  std::ostringstream begin;
  begin << std::hex << there << "-";
  const std::string its = all.substr(all.find(begin.str()));
  EXPECT_THAT(its.substr(its.find("VmFlags:"), 60), ::testing::HasSubstr(" sr "));
}

// Programs call madvise right after mmap. The tool may have seen the mapping in between.
TEST_F(PreloadMappings, TheProgramsOwnAdviceStays) {
  const std::uint64_t at = program.map(path, kLength);
  const TableEntry before = registered().at(0);
  ASSERT_FALSE(before.advised);
  program.ask("advise", at, kLength, MADV_SEQUENTIAL);
  for (const int advice : {MADV_RANDOM, MADV_NORMAL}) {
    EXPECT_EQ(owner.advise(before, at, at + kLength, advice, std::chrono::seconds(20)).error, 0);
    EXPECT_THAT(flags(at), ::testing::HasSubstr(" sr "));
  }
  EXPECT_EQ(wrong(at, kLength), 0u);
  EXPECT_EQ(let_go(before).error, 0);
  EXPECT_EQ(resident(at, kLength), 0u) << "it is released all the same";
}

TEST_F(PreloadMappings, ThousandsOfMappings) {
  constexpr std::size_t kMany = 5000;
  for (std::size_t i = 0; i < kMany; ++i)
    program.map(path, kMib, PROT_READ, MAP_SHARED, 4096 * (i % 2));
  EXPECT_THAT(registered(), SizeIs(kMany));
  program.ask("unmap", registered()[kMany / 2].begin, kMib);
  EXPECT_THAT(registered(), SizeIs(kMany - 1));
  for (const std::size_t i : {std::size_t{0}, kMany / 3, kMany - 2}) {
    EXPECT_EQ(let_go(registered()[i]).error, 0);
  }
  EXPECT_EQ(owner.lost().mappings, 0u);
}

// Files that are no longer mapped do not fill the table: their entries are reused.
TEST_F(PreloadMappings, FilesThatAreGoneAreForgotten) {
  SharedTableOwner small({.least_bytes = kMib, .keep_files = 4});
  GuardedProgram other(small.variable());
  const std::uint64_t kept = other.map(path, kMib);
  std::set<std::uint32_t> entries;
  for (int i = 0; i < 100; ++i) {
    const std::string name = folder.write("gone" + std::to_string(i), std::string(kMib, 'x'));
    const std::uint64_t at = other.map(name, kMib);
    small.retire_files();
    const auto found = small.mappings();
    ASSERT_THAT(found, SizeIs(2)) << i;
    const TableEntry& mapping = found[found[0].begin == at ? 0 : 1];
    EXPECT_EQ(small.file(mapping.file).path, name);
    entries.insert(mapping.file);
    other.ask("unmap", at, kMib);
    ASSERT_EQ(::unlink(name.c_str()), 0);
  }
  small.retire_files();
  ASSERT_THAT(small.mappings(), SizeIs(1));
  EXPECT_EQ(small.mappings()[0].begin, kept);
  EXPECT_EQ(small.file(small.mappings()[0].file).path, path) << "mapped, so it stays";
  EXPECT_LE(small.files_used(), 8u);
  EXPECT_EQ(small.lost().files, 0u);
}

TEST_F(PreloadMappings, StormOfThreadsUnderARainOfCommands) {
  program.ask("map", path, kLength, 0, PROT_READ, MAP_SHARED, 0);
  std::ostringstream line;
  line << std::hex << "storm " << path << " " << 2 * kMib << " " << 1000;
  program.tell(line.str());
  std::atomic<bool> over{false};
  std::uint64_t carried_out = 0;
  std::thread rain([&] {
    while (!over) {
      for (const TableEntry& mapping : of(program)) {
        carried_out +=
            owner.release(mapping, mapping.begin, mapping.end, std::chrono::seconds(20)).error == 0;
      }
    }
  });
  EXPECT_EQ(program.answer(), "0");
  over = true;
  rain.join();
  EXPECT_GT(carried_out, 100u);
  EXPECT_THAT(registered(), SizeIs(1));
  EXPECT_EQ(program.exit(3), 3);
}

}  // namespace
}  // namespace evenkeel
