// Which other files opening tokens can reach. No format of tokens names other files: an index and
// its tokens are in one folder and found by their names. Links are followed as the system does, and
// must lead to a regular file.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/token_test_files.h"

namespace evenkeel {
namespace {

using Companions = TokenFileTest;

TEST_F(Companions, ANameInsideAnIndexIsNeverOpened) {
  // Paths in place of names, modes or metadata are ordinary bytes.
  const std::string secret = write("secret", "secret tokens...");
  const std::string tokens = write("a.ds", "12345678");
  write("a.ds.index", le<std::uint64_t>(4));
  write("a.ds.metadata", secret + "\n/etc/passwd|1\n../secret\n");
  const TokenLayout layout = open({tokens, path("a.ds.metadata")});
  EXPECT_EQ(layout.layout.paths, std::vector<std::string>{tokens});
  EXPECT_EQ(layout.layout.rows, 4u);
}

TEST_F(Companions, ALinkedIndexIsFollowed) {
  std::filesystem::create_directory(path("elsewhere"));
  const std::string bin = write("m.bin", counting<std::uint16_t>(0, 10));
  const std::string real = write("elsewhere/real", MegatronIndex::of({10}).bytes());
  ASSERT_EQ(::symlink(real.c_str(), path("m.idx").c_str()), 0);
  expect_counting<std::uint16_t>(open({bin}), 10);
}

TEST_F(Companions, WhatIsNoRegularFileIsRefusedAndNotWaitedFor) {
  const std::string bin = write("m.bin", counting<std::uint16_t>(0, 10));
  const auto refused_as = [&](const char* what) {
    EXPECT_EQ(token_refusal({bin}).path(), path("m.idx")) << what;
    ::unlink(path("m.idx").c_str());
  };
  ASSERT_EQ(::symlink("nowhere", path("m.idx").c_str()), 0);
  refused_as("a link that leads nowhere");
  ASSERT_EQ(::symlink("m.idx", path("m.idx").c_str()), 0);
  refused_as("a link to itself");
  ASSERT_EQ(::symlink("/dev/zero", path("m.idx").c_str()), 0);
  refused_as("a link to a device");
  ASSERT_EQ(::mkfifo(path("m.idx").c_str(), 0600), 0);
  refused_as("a pipe that nobody writes to");
}

}  // namespace
}  // namespace evenkeel
