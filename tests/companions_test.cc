// Which files an index can lead to. No format that is read names other files; the index and its
// tokens find each other by their names, in one folder. Links are followed as the system follows
// them, and what they lead to must be a regular file.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/token_test_files.h"

namespace evenkeel {
namespace {

using Companions = TokenFileTest;

TEST_F(Companions, ANameInsideAnIndexIsNeverOpened) {
  // Paths where names, modes or metadata could be: they are bytes like others.
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
