#include "cli/terminal.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace evenkeel::cli
