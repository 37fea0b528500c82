#include "meter/proc_maps.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "base/text_file.h"
#include "evenkeel/bytes.h"
#include "guard/test_mapping.h"

namespace evenkeel {
namespace {

TEST(ProcMaps, LinesAreParsed) {
  const auto parsed =
      parse_maps_line("7f0000000000-7f0000200000 rw-s 00003000 fe:01 1234      /data/a b.bin");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->path, "/data/a b.bin");
  EXPECT_TRUE(parsed->has_file());
  const Vma* const vma = &parsed->vma;
  EXPECT_EQ(vma->range, (AddressRange{0x7f0000000000, 0x7f0000200000}));
  EXPECT_EQ(vma->offset, 0x3000u);
  EXPECT_EQ(vma->device, (std::uint64_t{0xfe} << 32) + 1);
  EXPECT_EQ(vma->inode, 1234u);
  EXPECT_TRUE(vma->shared);
  EXPECT_EQ(parse_maps_line("1000-2000 rw-p 00000000 00:00 0 ")->vma.inode, 0u);
}

TEST(ProcMaps, MalformedLinesAreRefused) {
  for (const char* line : {"", "1000", "1000-2000", "1000-2000 rw", "1000-2000 rw-p 0 00:00",
                           "x-y rw-p 0 0:0 0", "1000-2000 rw-p 0 00 12"}) {
    EXPECT_FALSE(parse_maps_line(line)) << line;
  }
}

TEST(ProcMaps, PathsAreNotUnescaped) {
  const auto path = [](std::string_view end) {
    return std::string(parse_maps_line("1000-2000 r--p 0 fe:00 5 " + std::string(end))->path);
  };
  EXPECT_EQ(path("/a  b "), "/a  b ");
  EXPECT_EQ(path("/a\\012b"), "/a\\012b");
  EXPECT_EQ(path("/a (deleted)"), "/a (deleted)");
  EXPECT_EQ(unescape_newlines("/a\\012b\\012\\01"), "/a\nb\n\\01");
  EXPECT_TRUE(parse_maps_line("1000-2000 r-xp 00000000 fe:00 5 /bin/true")->vma.executable);
}

TEST(ProcMaps, SomeLinesHaveNoFile) {
  for (const char* line :
       {"", "x", "1000-2000 rw-p 00000000 00:00 0 ", "1000-2000 rw-p 00000000 00:00 0",
        "1000-2000 rw-p 00000000 00:00 0                  [heap]", "1000-2000 rw-p 0 0:0 5 [odd]",
        "1000-2000 rw-p 00000000 fe:00 12", "1000-2000 r /x", "1000-2000 r--p 0 fe:00 many /x"}) {
    const auto parsed = parse_maps_line(line);
    EXPECT_FALSE(parsed && parsed->has_file()) << line;
  }
}

TEST(ProcMaps, TheQueryAndTheTextAgree) {
  const NumberFile file(1_MiB);
  const TestMapping map(file);
  // Different advice splits the mapping into three.
  ASSERT_EQ(::madvise(map.words() + (256_KiB / 8), 256_KiB, MADV_RANDOM), 0);
  const auto begin = reinterpret_cast<std::uint64_t>(map.words());
  const AddressRange range{begin, begin + 1_MiB};
  std::vector<Vma> wanted;
  const auto text = read_text_file("/proc/self/maps");
  std::string_view rest = *text, line;
  while (take_line(rest, line)) {
    const auto parsed = parse_maps_line(line);
    if (parsed && parsed->vma.range.begin >= range.begin && parsed->vma.range.end <= range.end) {
      wanted.push_back(parsed->vma);
    }
  }
  EXPECT_EQ(wanted.size(), 3u);
  EXPECT_EQ(Maps().in(range), wanted);
  EXPECT_TRUE(covers(wanted, range, wanted.front()));
}

class Covers : public testing::Test {
 protected:
  const Vma wanted_{{0x1000, 0x3000}, 0x5000, 7, 42, true};
  const AddressRange range_{0x1000, 0x3000};
  bool covered(std::vector<Vma> found) const { return covers(found, range_, wanted_); }
};

TEST_F(Covers, TheMappingWholeOrSplit) {
  EXPECT_TRUE(covered({wanted_}));
  EXPECT_TRUE(
      covered({{{0x1000, 0x2000}, 0x5000, 7, 42, true}, {{0x2000, 0x3000}, 0x6000, 7, 42, true}}));
  EXPECT_TRUE(covered({{{0x0000, 0x9000}, 0x4000, 7, 42, true}}));
}

TEST_F(Covers, NothingThatDiffers) {
  EXPECT_FALSE(covered({}));
  EXPECT_FALSE(covered({{{0x1000, 0x2000}, 0x5000, 7, 42, true}}));  // the end is missing
  EXPECT_FALSE(covered({{{0x2000, 0x3000}, 0x6000, 7, 42, true}}));  // the beginning
  EXPECT_FALSE(covered({{{0x1000, 0x3000}, 0x6000, 7, 42, true}}));  // offset
  EXPECT_FALSE(covered({{{0x1000, 0x3000}, 0x5000, 8, 42, true}}));  // device
  EXPECT_FALSE(covered({{{0x1000, 0x3000}, 0x5000, 7, 43, true}}));  // inode
  EXPECT_FALSE(covered({{{0x1000, 0x3000}, 0x5000, 7, 42, false}}));
  EXPECT_FALSE(covered({{{0x1000, 0x2000}, 0x5000, 7, 42, true},
                        {{0x2000, 0x3000}, 0, 0, 0, false}}));  // anonymous memory in the middle
}

TEST_F(Covers, NeverAnonymousMemory) {
  const Vma nothing{{0x1000, 0x3000}, 0, 0, 0, false};
  EXPECT_FALSE(covers({nothing}, range_, nothing));
}

}  // namespace
}  // namespace evenkeel
