#include "base/visible.h"

#include <gtest/gtest.h>

namespace evenkeel {
namespace {

TEST(Visible, OrdinaryTextStaysAsItIs) {
  EXPECT_EQ(visible(""), "");
  EXPECT_EQ(visible("/data/größe 漢字 😀 <script>'\"&\\"), "/data/größe 漢字 😀 <script>'\"&\\");
  EXPECT_EQ(visible("\uFFFD"), "\uFFFD");
}

TEST(Visible, WhatATerminalObeysIsShown) {
  EXPECT_EQ(visible("\x1b[2J\a\r\n\t\x7f"), "\\x1b[2J\\x07\\x0d\\x0a\\x09\\x7f");
  EXPECT_EQ(visible("a\xc2\x9b"
                    "31m"),
            "a\\x9b31m");  // U+009B begins a command, as ESC [ does
  EXPECT_EQ(visible(std::string_view("\0x", 2)), "\\x00x");
}

TEST(Visible, WhatIsNotUtf8IsShownByteByByte) {
  EXPECT_EQ(visible("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(visible("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half of a pair
  EXPECT_EQ(visible("\x9b"), "\\x9b");
}

TEST(Visible, WhatTurnsTheLineIsShown) {
  EXPECT_EQ(visible("a\u202Egnp.exe"), "a\\u202egnp.exe");
  EXPECT_EQ(visible("\u200F\u2066\u2028"), "\\u200f\\u2066\\u2028");
}

TEST(Visible, WhatIsKeptStays) { EXPECT_EQ(visible("a\n\tb\r", "\n\t"), "a\n\tb\\x0d"); }

TEST(EscapeMarkup, LeavesNoMarkupAndNothingThatXmlForbids) {
  EXPECT_EQ(escape_markup("<a b=\"c\" d='e'>&"), "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;");
  EXPECT_EQ(escape_markup("a\x01\x7f\xff\n\té\uFFFE"), "a\uFFFD\uFFFD\uFFFD\n\té\uFFFD");
}

}  // namespace
}  // namespace evenkeel
