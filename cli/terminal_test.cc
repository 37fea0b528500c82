#include "cli/terminal.h"

#include <gtest/gtest.h>

#include "cli/prepare_options.h"

namespace evenkeel::cli {
namespace {

TEST(ShellWord, PlainWordsStayPlain) {
  EXPECT_EQ(shell_word("a-b_c/d.npy"), "a-b_c/d.npy");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_word("größe"), "'größe'");
}

TEST(ShellWord, WhatCannotBeSeenIsWrittenSoThatItCan) {
  EXPECT_EQ(shell_word("a\nb"), "$'a\\012b'");
  EXPECT_EQ(shell_word("\x1b[2J'\\"), "$'\\033[2J\\'\\\\'");
  EXPECT_EQ(shell_word("\xff\xc3\xa9"), "$'\\377\\303\\251'");
  EXPECT_EQ(shell_word("\x01"
                       "7"),
            "$'\\0017'");  // three digits, whatever follows
}

TEST(Terminal, ProgressOfLongWorkSaysTheTimeLeft) {
  const WorkProgress half{"writing", 60 << 20, 120 << 20};
  EXPECT_EQ(progress_in_words(half, 0, 0.5), bar(0.5) + "  50 %  writing");
  EXPECT_EQ(progress_in_words(half, 0, 10), bar(0.5) + "  50 %  writing, 6 MiB/s, 10 s left");
  // What an earlier run did says nothing about the speed of this one.
  EXPECT_EQ(progress_in_words(half, 40 << 20, 10),
            bar(0.5) + "  50 %  writing, 2 MiB/s, 30 s left");
  EXPECT_EQ(progress_in_words(half, 60 << 20, 10), bar(0.5) + "  50 %  writing");
  const WorkProgress over{"writing", 130 << 20, 120 << 20};  // where the total is an estimate
  EXPECT_EQ(progress_in_words(over, 0, 13), bar(1) + " 100 %  writing, 10 MiB/s, 0 s left");
}

}  // namespace
}  // namespace evenkeel::cli
