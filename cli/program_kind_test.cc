#include "cli/program_kind.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/forked.h"
#include "tests/temp_folder.h"

namespace evenkeel::cli {
namespace {

std::string own_header() {
  std::string bytes(sizeof(Elf64_Ehdr), '\0');
  std::ifstream("/proc/self/exe", std::ios::binary)
      .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

class ProgramKindTest : public testing::Test {
 protected:
  std::string executable(const std::string& name, const std::string& bytes, mode_t mode = 0755) {
    const std::string path = folder_.write(name, bytes);
    ::chmod(path.c_str(), mode);
    return path;
  }
  // A copy of our own ELF header, with these program headers.
  std::string elf(const std::vector<std::uint32_t>& parts, const std::string& loader = "") {
    Elf64_Ehdr header;
    std::memcpy(&header, own_.data(), sizeof header);
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = static_cast<Elf64_Half>(parts.size());
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    for (const std::uint32_t type : parts) {
      Elf64_Phdr part{};
      part.p_type = type;
      part.p_offset = sizeof header + parts.size() * sizeof part;
      part.p_filesz = loader.size() + 1;
      bytes.append(reinterpret_cast<const char*>(&part), sizeof part);
    }
    return bytes + loader + '\0';
  }
  ProgramKind kind(const std::string& path) { return look_at_program(path).kind; }

  TempFolder folder_;
  const std::string own_ = own_header();
};

TEST_F(ProgramKindTest, ThisProgramIsDynamic) {
  const Program program = look_at_program("/proc/self/exe");
  EXPECT_EQ(program.kind, ProgramKind::kDynamic);
  EXPECT_EQ(program.path, "/proc/self/exe");
}

TEST_F(ProgramKindTest, LooksInPath) {
  const Program program = look_at_program("sh");
  EXPECT_EQ(program.kind, ProgramKind::kDynamic);
  EXPECT_TRUE(program.path.ends_with("/sh")) << program.path;
}

TEST_F(ProgramKindTest, LooksInThePathOfTheUser) {
  executable("only-here", elf({PT_LOAD}));
  const std::string before = std::getenv("PATH");
  ::setenv("PATH", ("/no/such/folder:" + folder_.root()).c_str(), 1);
  const Program program = look_at_program("only-here");
  ::setenv("PATH", before.c_str(), 1);
  EXPECT_EQ(program.kind, ProgramKind::kStatic);
  EXPECT_EQ(program.path, folder_.path("only-here"));
}

TEST_F(ProgramKindTest, WithoutALoaderItIsStatic) {
  EXPECT_EQ(kind(executable("static", elf({PT_LOAD, PT_NOTE}))), ProgramKind::kStatic);
  EXPECT_EQ(kind(executable("dynamic", elf({PT_LOAD, PT_INTERP}))), ProgramKind::kDynamic);
}

TEST_F(ProgramKindTest, OfAnotherWordSizeOrProcessorItIsForeign) {
  std::string old = elf({PT_LOAD, PT_INTERP});
  old[EI_CLASS] = sizeof(void*) == 8 ? ELFCLASS32 : ELFCLASS64;
  EXPECT_EQ(kind(executable("old", old)), ProgramKind::kForeign);
  std::string other = elf({PT_LOAD, PT_INTERP});
  Elf64_Half machine = EM_68K;
  std::memcpy(other.data() + offsetof(Elf64_Ehdr, e_machine), &machine, sizeof machine);
  EXPECT_EQ(kind(executable("other", other)), ProgramKind::kForeign);
}

TEST_F(ProgramKindTest, ScriptsAreFollowed) {
  const std::string program = executable("program", elf({PT_LOAD}));
  EXPECT_EQ(look_at_program(executable("s1", "#!" + program + "\n")).path, program);
  EXPECT_EQ(look_at_program(executable("s2", "#! \t" + program + " -x -y\n")).path, program);
  EXPECT_EQ(kind(executable("s3", "#!" + folder_.path("s1") + "\n")), ProgramKind::kStatic);
  EXPECT_EQ(kind(executable("s4", "#!/usr/bin/env sh\n")), ProgramKind::kDynamic);
  EXPECT_EQ(kind(executable("s5", "#!/usr/bin/env -S A=b sh -e\n")), ProgramKind::kDynamic);
  EXPECT_EQ(kind(executable("s6", "#!/usr/bin/env\n")), ProgramKind::kDynamic);  // env itself
}

TEST_F(ProgramKindTest, ScriptsWithoutAnEndAreGivenUp) {
  EXPECT_EQ(kind(executable("loop", "#!" + folder_.path("loop") + "\n")), ProgramKind::kUnknown);
  EXPECT_EQ(kind(executable("empty", "#!")), ProgramKind::kUnknown);
  EXPECT_EQ(kind(executable("blank", "#!  \n")), ProgramKind::kUnknown);
  EXPECT_EQ(kind(executable("absent", "#!/no/such/program\n")), ProgramKind::kUnknown);
  EXPECT_EQ(kind(executable("astray", "#!/usr/bin/env no-such-program\n")), ProgramKind::kUnknown);
}

TEST_F(ProgramKindTest, WhatIsNoProgramIsUnknown) {
  EXPECT_EQ(kind("no-such-program"), ProgramKind::kUnknown);
  EXPECT_EQ(kind("/no/such/program"), ProgramKind::kUnknown);
  EXPECT_EQ(kind(folder_.root()), ProgramKind::kUnknown);
  EXPECT_EQ(kind(executable("text", "echo hello\n")), ProgramKind::kUnknown);
  EXPECT_EQ(kind(executable("nothing", "")), ProgramKind::kUnknown);
  EXPECT_EQ(kind(executable("cut", own_.substr(0, 20))), ProgramKind::kUnknown);
  EXPECT_EQ(kind(executable("parts", elf({PT_LOAD, PT_INTERP}).substr(0, 80))),
            ProgramKind::kUnknown);
}

TEST_F(ProgramKindTest, WithMoreRightsItIsPrivileged) {
  if (::geteuid() != 0) GTEST_SKIP() << "not root: cannot make a program of another user";
  const std::string path = executable("setuid", elf({PT_INTERP}));
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  ::chmod(path.c_str(), 04755);
  EXPECT_EQ(kind(path), ProgramKind::kPrivileged);
  ::chmod(path.c_str(), 02755);
  EXPECT_EQ(kind(path), ProgramKind::kPrivileged);
  ::chmod(path.c_str(), 0755);
  EXPECT_EQ(kind(path), ProgramKind::kDynamic);
}

// The owner gains no rights from it.
TEST_F(ProgramKindTest, WithItsOwnersRightsItIsNotPrivileged) {
  EXPECT_EQ(kind(executable("own", elf({PT_INTERP}), 06755)), ProgramKind::kDynamic);
}

TEST_F(ProgramKindTest, NamesWhatIsMissing) {
  const std::string loader = "/no/such/folder/ld-musl-x86_64.so.1";
  EXPECT_EQ(missing_part(executable("musl", elf({PT_LOAD, PT_INTERP}, loader))), loader);
  EXPECT_EQ(missing_part(executable("script", "#!" + loader + " -x\n")), loader);
  EXPECT_EQ(missing_part(executable("by", "#!" + folder_.path("musl") + "\n")), loader);
  EXPECT_EQ(missing_part("/proc/self/exe"), "");
  EXPECT_EQ(missing_part("sh"), "");
  EXPECT_EQ(missing_part("no-such-program"), "");
  EXPECT_EQ(missing_part(executable("none", elf({PT_LOAD}))), "");
  EXPECT_EQ(missing_part(executable("huge", elf({PT_INTERP}).substr(0, 100))), "");
}

}  // namespace
}  // namespace evenkeel::cli
