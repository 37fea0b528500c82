#include "cli/top_view.h"

#include <gtest/gtest.h>

#include "evenkeel/bytes.h"

namespace evenkeel::cli {
namespace {

SeenPage page_of(const std::string& file, pid_t pid) {
  SeenPage page{.file = file, .user = 0, .pid = pid, .data = {}};
  page.data.pid = static_cast<std::uint64_t>(pid);
  page.data.limit = 64_MiB;
  page.data.in_use = 16_MiB;
  return page;
}

TEST(TopView, RatesAndSharesAreOfTheTimeBetweenTwoReadings) {
  SeenPage then = page_of("a", 7);
  then.data.bytes_from_disk = 1'000'000;
  then.data.cache_hits = 100;
  then.data.wait_ns = 5'000'000'000;
  SeenPage now = then;
  now.data.bytes_from_disk += 4'000'000;
  now.data.bytes_from_cache += 2'000'000;
  now.data.cache_hits += 30;
  now.data.cache_misses += 10;
  now.data.wait_ns += 1'000'000'000;
  const TopRow row = rows_between({then}, {now}, 2).front();
  EXPECT_DOUBLE_EQ(*row.bytes_per_second, 3e6);
  EXPECT_DOUBLE_EQ(*row.hit_share, 0.75);
  EXPECT_DOUBLE_EQ(*row.wait_share, 0.5);
}

TEST(TopView, AProgramWithALoaderWaitsForBatches) {
  SeenPage then = page_of("a", 7), now = then;
  now.data.loaders = 1;
  now.data.wait_ns = 900'000'000;
  now.data.batch_wait_ns = 100'000'000;
  EXPECT_DOUBLE_EQ(*rows_between({then}, {now}, 1).front().wait_share, 0.1);
}

TEST(TopView, UnknownBeforeTheSecondReadingAndNeverNegative) {
  SeenPage now = page_of("a", 7);
  now.data.cache_hits = 1;
  now.data.cache_misses = 1;
  const TopRow fresh = rows_between({}, {now}, 1).front();
  EXPECT_FALSE(fresh.bytes_per_second);
  EXPECT_FALSE(fresh.wait_share);
  EXPECT_DOUBLE_EQ(*fresh.hit_share, 0.5);  // since it began
  SeenPage then = now;
  then.data.bytes_from_disk = 1000;
  EXPECT_DOUBLE_EQ(*rows_between({then}, {now}, 1).front().bytes_per_second, 0);
}

TEST(TopView, SortedByRateThenByNumber) {
  const std::vector<SeenPage> before = {page_of("a", 3), page_of("b", 2), page_of("c", 1)};
  std::vector<SeenPage> after = before;
  after[1].data.bytes_from_network = 10;
  std::vector<pid_t> order;
  for (const TopRow& row : rows_between(before, after, 1)) order.push_back(row.page.pid);
  EXPECT_EQ(order, (std::vector<pid_t>{2, 1, 3}));
}

std::vector<TopRow> rows_to_show(int count) {
  std::vector<SeenPage> pages;
  for (int i = 1; i <= count; ++i) pages.push_back(page_of(std::to_string(i), i));
  std::vector<TopRow> rows = rows_between(pages, pages, 1);
  for (TopRow& row : rows) {
    row.user = "somebody-with-a-long-name";
    row.command = "python \033[31mtrain.py --with a very long command line that does not fit";
  }
  return rows;
}

TEST(TopView, KeepsToTheTerminal) {
  for (const std::size_t columns : {10, 40, 80, 200}) {
    for (const std::size_t lines : {1, 2, 4, 5, 24}) {
      const auto text = top_lines(rows_to_show(10), columns, lines);
      EXPECT_LE(text.size(), std::max<std::size_t>(lines, 3));
      for (const std::string& line : text) {
        EXPECT_LE(line.size(), columns);
        EXPECT_EQ(line.find('\033'), std::string::npos);
      }
    }
  }
  EXPECT_EQ(top_lines(rows_to_show(10), 80, 5).back(), "and 9 more");
  EXPECT_EQ(top_lines(rows_to_show(10), 80, 0).size(), 13u);
}

TEST(TopView, SaysWhatItShows) {
  const auto text = top_lines(rows_to_show(1), 80, 24);
  EXPECT_EQ(text[0], "1 process, 16 MiB of 64 MiB in use, 0.0 MB/s");
  EXPECT_EQ(text[2], "    PID USER        BUDGET    IN USE  HITS     MB/S  WAIT  COMMAND");
  EXPECT_EQ(text[3].substr(0, 62),
            "      1 somebody    64 MiB    16 MiB     -      0.0    0%  pyt");
  EXPECT_EQ(top_lines({}, 80, 24).back(), "none of your processes uses Evenkeel now");
}

TEST(TopView, AProcessOfAContainerHasNoNumberHere) {
  const auto rows = rows_between({}, {page_of("a", 0)}, 1);
  EXPECT_EQ(top_lines(rows, 80, 24)[3].substr(0, 8), "      - ");
}

// A page may hold any numbers.
TEST(TopView, NonsenseIsShownAsSuch) {
  SeenPage then = page_of("a", 7), now = then;
  now.data.limit = now.data.in_use = now.data.bytes_from_disk = UINT64_MAX;
  now.data.cache_hits = now.data.cache_misses = UINT64_MAX;
  now.data.wait_ns = UINT64_MAX;
  for (const std::string& line : top_lines(rows_between({then}, {now}, 1e-9), 80, 24)) {
    EXPECT_LE(line.size(), 80u);
  }
}

}  // namespace
}  // namespace evenkeel::cli
