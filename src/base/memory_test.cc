#include "base/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/sys.h"
#include "evenkeel/error.h"
#include "tests/forked.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

const std::uint64_t kPage = sys::page_size();

TEST(PageBufferTest, IsWholePagesOfZerosPaidFromTheBudget) {
  const Budget budget(1_MiB);
  {
    const PageBuffer buffer(budget, kPage + 1, "x");
    EXPECT_EQ(buffer.size(), 2 * kPage);
    EXPECT_EQ(budget.in_use(), 2 * kPage);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % kPage, 0u);
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + buffer.size(),
                            [](std::byte b) { return b == std::byte{0}; }));
    std::memset(buffer.data(), 1, buffer.size());
  }
  EXPECT_EQ(budget.in_use(), 0u);
}

TEST(PagesTest, OfHugeSizeBeginWithAHugePage) {
  const Pages pages(5_MiB + 1, "x");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages.data()) % 2_MiB, 0u);
  EXPECT_EQ(pages.size(), 5_MiB + kPage);
}

TEST(PagesTest, SeveralLieTogetherAndGoOneByOne) {
  std::vector<Pages> parts = Pages::several(5, kPage + 1, "x");
  ASSERT_EQ(parts.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(parts[i].size(), 2 * kPage);
    EXPECT_EQ(parts[i].data(), parts[0].data() + i * 2 * kPage);
    std::memset(parts[i].data(), static_cast<int>(i), parts[i].size());
  }
  std::byte* const second = parts[1].data();
  parts.erase(parts.begin() + 1);
  unsigned char resident[2];
  EXPECT_EQ(::mincore(second, 2 * kPage, resident), -1);
  EXPECT_EQ(errno, ENOMEM);
  for (const Pages& part : parts) EXPECT_EQ(part.data()[0], part.data()[part.size() - 1]);
  EXPECT_TRUE(Pages::several(0, kPage, "x").empty());
  EXPECT_THROW(Pages::several(3, UINT64_MAX / 4 * 3, "x"), Error);
}

// Whether the mapping at `at` has the huge-page advice, according to the kernel.
bool asks_for_huge_pages(const std::byte* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  std::ifstream smaps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t begin, end;
    char dash;
    if (std::istringstream range(line); range >> std::hex >> begin >> dash >> end && dash == '-') {
      here = begin <= address && address < end;
    }
    if (here && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return false;
}

TEST(PagesTest, LargeOnesAskForHugePages) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) {
    GTEST_SKIP() << "the kernel has no huge pages";
  }
  const Pages large(8_MiB, "x"), small(1_MiB, "x");
  EXPECT_TRUE(asks_for_huge_pages(large.data()));
  EXPECT_FALSE(asks_for_huge_pages(small.data()));
}

// With the size of a huge page added, this would wrap around to one page.
TEST(PagesTest, ASizeNearTheEndOfTheAddressesIsRefused) {
  EXPECT_EQ(in_child([] {
              try {
                const Pages pages(UINT64_MAX - 2_MiB + 4_KiB + 1, "x");
              } catch (const Error& error) {
                return std::to_string(error.code());
              }
              return std::string("it fitted");
            }),
            std::to_string(ENOMEM));
}

TEST(PagesTest, TrimmedWithinAHugePageTheyKeepWhatIsInThem) {
  Pages pages(8_MiB, "x");
  std::memset(pages.data(), 7, pages.size());
  pages.trim(pages.data() + 3_MiB + 1);
  EXPECT_EQ(pages.size(), 3_MiB + kPage);
  EXPECT_TRUE(std::all_of(pages.data(), pages.data() + pages.size(),
                          [](std::byte b) { return b == std::byte{7}; }));
}

TEST(PagesTest, TrimmedTheyEndWithThePageOfTheirEnd) {
  const auto is_mapped = [](std::byte* page) {
    unsigned char resident;
    return ::mincore(page, 1, &resident) == 0;
  };
  Pages pages(5 * kPage, "x");
  std::byte* const data = pages.data();
  pages.trim(data + 4 * kPage + 1);
  EXPECT_EQ(pages.size(), 5 * kPage);
  pages.trim(data + kPage + 1);
  EXPECT_EQ(pages.size(), 2 * kPage);
  EXPECT_EQ(pages.data(), data);
  EXPECT_TRUE(is_mapped(data + kPage));
  EXPECT_FALSE(is_mapped(data + 2 * kPage));
  pages.trim(data);
  EXPECT_FALSE(pages);
  EXPECT_FALSE(is_mapped(data));
}

TEST(PageBufferTest, EmptyHoldsNothing) {
  const PageBuffer buffer;
  EXPECT_FALSE(buffer);
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_EQ(buffer.data(), nullptr);
}

TEST(PageBufferTest, MovesWithItsShare) {
  const Budget budget(1_MiB);
  PageBuffer a(budget, kPage, "a");
  std::byte* const where = a.data();
  PageBuffer b(std::move(a));
  EXPECT_FALSE(a);  // NOLINT: a moved-from buffer is empty
  EXPECT_EQ(b.data(), where);
  PageBuffer c;
  c = std::move(b);
  EXPECT_EQ(c.data(), where);
  EXPECT_EQ(budget.in_use(), kPage);
  c = PageBuffer();
  EXPECT_EQ(budget.in_use(), 0u);
}

TEST(PageBufferTest, IsRefusedWhenItDoesNotFit) {
  const Budget budget(3 * kPage);
  try {
    const PageBuffer buffer(budget, 3 * kPage + 1, "read buffers");
    ADD_FAILURE() << "it fitted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBudget);
    EXPECT_THAT(error.what(), HasSubstr("read buffers need"));
  }
  EXPECT_EQ(budget.in_use(), 0u);
}

TEST(PageBufferTest, GivesItsShareBackWhenTheSystemHasNoMemory) {
  const std::string said = in_child([] {
    const Budget budget(1ull << 62);
    try {
      const PageBuffer buffer(budget, 1ull << 60, "read buffers");
    } catch (const Error& error) {
      return std::to_string(error.code()) + " " + std::to_string(budget.in_use());
    }
    return std::string("it fitted");
  });
  EXPECT_EQ(said, std::to_string(ENOMEM) + " 0");
}

TEST(PageBufferTest, ASizeThatRoundsUpToNothingIsRefused) {
  const Budget budget(~std::uint64_t{0});
  EXPECT_THROW(PageBuffer(budget, ~std::uint64_t{0} - 5, "x"), Error);
  EXPECT_EQ(budget.in_use(), 0u);
}

}  // namespace
}  // namespace evenkeel
