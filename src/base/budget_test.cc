// labels: threads
#include "evenkeel/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "evenkeel/error.h"
#include "tests/forked.h"
#include "tests/watchdog.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

std::string refusal(const Budget& budget, std::uint64_t bytes, std::string_view what) {
  try {
    const Reservation taken = budget.reserve(bytes, what);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBudget);
    return error.what();
  }
  return "";
}

TEST(BudgetAccount, CountsWhatIsReservedAndTheMostThatEverWas) {
  const Budget budget(1000);
  EXPECT_EQ(budget.limit(), 1000u);
  {
    const Reservation a = budget.reserve(300, "a");
    const Reservation b = budget.reserve(500, "b");
    EXPECT_EQ(b.bytes(), 500u);
    EXPECT_EQ(budget.in_use(), 800u);
    EXPECT_EQ(budget.left(), 200u);
  }
  EXPECT_EQ(budget.in_use(), 0u);
  EXPECT_EQ(budget.peak(), 800u);
  const Reservation again = budget.reserve(1000, "all");
  EXPECT_EQ(budget.left(), 0u);
  EXPECT_EQ(budget.peak(), 1000u);
}

TEST(BudgetAccount, IsSharedByCopies) {
  const Budget budget(1000);
  const Budget copy = budget;
  const Reservation held = copy.reserve(600, "x");
  EXPECT_EQ(budget.in_use(), 600u);
  EXPECT_FALSE(budget.try_reserve(401, "y"));
}

TEST(BudgetAccount, OutlivesTheBudget) {
  Reservation held;
  {
    const Budget budget(10);
    held = budget.reserve(10, "x");
  }
  EXPECT_EQ(held.bytes(), 10u);
  held.release();
  EXPECT_EQ(held.bytes(), 0u);
}

TEST(BudgetAccount, ARefusalTakesNothing) {
  const Budget budget(100);
  EXPECT_FALSE(budget.try_reserve(101, "x"));
  EXPECT_NE(refusal(budget, 101, "x"), "");
  EXPECT_EQ(budget.in_use(), 0u);
  EXPECT_EQ(budget.peak(), 0u);
}

TEST(BudgetAccount, NeverWrapsAround) {
  const Budget budget(100);
  const Reservation one = budget.reserve(1, "x");
  EXPECT_FALSE(budget.try_reserve(kHuge, "y"));
  EXPECT_FALSE(budget.try_reserve(kHuge - 1, "y"));
  EXPECT_FALSE(Budget(0).try_reserve(1, "y"));
  EXPECT_TRUE(Budget(kHuge).try_reserve(kHuge, "y"));
}

TEST(BudgetMessage, LetsAReaderRepeatTheArithmetic) {
  const Budget budget(1'000'000);
  const Reservation a = budget.reserve(600'000, "read buffers");
  const Reservation b = budget.reserve(50'000, "plans");
  const Reservation c = budget.reserve(100'000, "plans");
  const std::string message = refusal(budget, 300'000, "a chunk's rows");
  EXPECT_THAT(message, HasSubstr("a chunk's rows need 300,000 bytes"));
  EXPECT_THAT(message, HasSubstr("the budget is 1,000,000 bytes, of which 750,000 are in use"));
  EXPECT_THAT(message, HasSubstr("(plans 150,000 in 2, read buffers 600,000)"));
  EXPECT_THAT(message, HasSubstr("250,000 are left"));
  EXPECT_THAT(message, HasSubstr("raise the budget to 2 MiB"));
}

TEST(BudgetMessage, NamesOnlyThoseWhoStillHold) {
  const Budget budget(100);
  Reservation early = budget.reserve(10, "early");
  Reservation moved;
  {
    Reservation inner = budget.reserve(20, "inner");
    moved = std::move(inner);
  }
  early.release();
  EXPECT_THAT(refusal(budget, 90, "x"), HasSubstr("(inner 20)"));
  EXPECT_THAT(refusal(budget, 90, "x"), Not(HasSubstr("early")));
  moved.release();
  EXPECT_THAT(refusal(budget, 101, "x"), HasSubstr("of which 0 are in use: 100 are left"));
}

TEST(BudgetMessage, SurvivesNumbersNearTheEnd) {
  const Budget budget(100);
  const Reservation one = budget.reserve(50, "x");
  const std::string message = refusal(budget, kHuge, "y");
  EXPECT_THAT(message, HasSubstr("18,446,744,073,709,551,615"));
  EXPECT_THAT(message, Not(HasSubstr("raise the budget")));
}

TEST(ReservationMove, CarriesTheShareAlong) {
  const Budget budget(100);
  Reservation a = budget.reserve(60, "a");
  Reservation b = std::move(a);
  EXPECT_EQ(a.bytes(), 0u);  // NOLINT: a moved-from reservation holds nothing
  EXPECT_EQ(b.bytes(), 60u);
  EXPECT_EQ(budget.in_use(), 60u);
  a.release();
  EXPECT_EQ(budget.in_use(), 60u);
}

TEST(ReservationMove, GivesBackWhatItOverwrites) {
  const Budget budget(100);
  Reservation a = budget.reserve(60, "a");
  Reservation b = budget.reserve(30, "b");
  a = std::move(b);
  EXPECT_EQ(budget.in_use(), 30u);
  EXPECT_EQ(a.bytes(), 30u);
  Reservation& same = a;
  a = std::move(same);
  EXPECT_EQ(budget.in_use(), 30u);
  std::swap(a, b);
  EXPECT_EQ(b.bytes(), 30u);
  EXPECT_EQ(budget.in_use(), 30u);
}

TEST(ReservationMove, CrossesAccounts) {
  const Budget one(100), other(100);
  Reservation a = one.reserve(60, "a");
  a = other.reserve(70, "b");
  EXPECT_EQ(one.in_use(), 0u);
  EXPECT_EQ(other.in_use(), 70u);
}

TEST(ReservationRelease, TwiceIsFine) {
  const Budget budget(100);
  Reservation a = budget.reserve(60, "a");
  a.release();
  a.release();
  EXPECT_EQ(budget.in_use(), 0u);
}

// Each took time in proportion to those that were left, so this took minutes.
TEST(ReservationRelease, CostsTheSameHoweverManyThereAre) {
  const Watchdog watchdog(std::chrono::minutes(1));
  const Budget budget(1'000'000);
  std::vector<Reservation> held;
  for (int i = 0; i < 200'000; ++i) held.push_back(budget.reserve(1, "one of many"));
  EXPECT_EQ(budget.in_use(), 200'000u);
  held.clear();
  EXPECT_EQ(budget.in_use(), 0u);
}

RC_GTEST_PROP(BudgetAccount, AgreesWithASum, (const std::vector<std::uint16_t>& steps)) {
  const Budget budget(100'000);
  std::vector<Reservation> held;
  std::uint64_t sum = 0, peak = 0;
  for (const std::uint16_t step : steps) {
    if (step % 3 == 0 && !held.empty()) {
      const std::size_t which = step % held.size();
      sum -= held[which].bytes();
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
    } else {
      auto share = budget.try_reserve(step, "x");
      RC_ASSERT(share.has_value() == (sum + step <= budget.limit()));
      if (share) {
        held.push_back(std::move(*share));
        sum += step;
        peak = std::max(peak, sum);
      }
    }
    RC_ASSERT(budget.in_use() == sum);
    RC_ASSERT(budget.peak() == peak);
  }
}

// Error messages list what other threads hold while these reserve, move and release it.
TEST(BudgetThreads, NeverExceedTheLimitTogether) {
  const Budget budget(1000);
  std::atomic<int> refused = 0, granted = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string name =
          "a holder with a name too long for the small-string space " + std::to_string(t);
      for (int i = 0; i < 2000; ++i) {
        try {
          Reservation taken = budget.reserve(200 + static_cast<std::uint64_t>(i % 200), name);
          Reservation moved = std::move(taken);
          if (budget.in_use() > budget.limit()) std::terminate();
          std::this_thread::yield();
          ++granted;
        } catch (const Error&) {
          ++refused;
        }
        if (i % 8 == 0) refusal(budget, 1001, "too much");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(granted + refused, 8000);
  EXPECT_EQ(budget.in_use(), 0u);
  EXPECT_LE(budget.peak(), 1000u);
}

TEST(BudgetText, IsParsedAsASize) {
  EXPECT_EQ(Budget::parse("64MiB").limit(), 64_MiB);
  EXPECT_EQ(Budget::parse("64MiB", 8).limit(), 64_MiB);  // not per node
  EXPECT_THROW(Budget::parse("lots"), Error);
  EXPECT_THROW(Budget::parse("/node"), Error);
  EXPECT_THROW(Budget::parse("1GiB/rack"), Error);
}

TEST(BudgetText, ANodesBudgetIsSharedByItsProcesses) {
  EXPECT_EQ(Budget::parse("1GiB/node", 8).limit(), 128_MiB);
  EXPECT_EQ(Budget::parse("1GiB/node").limit(), 1_GiB);
  EXPECT_EQ(Budget::parse("1GiB/node", 0).limit(), 1_GiB);
  EXPECT_EQ(Budget::parse("1000/node", 3).limit(), 333u);
}

TEST(BudgetText, DescribesItselfWithItsOrigin) {
  EXPECT_EQ(Budget(64_MiB).describe(), "64 MiB (67,108,864 bytes)");
  EXPECT_EQ(Budget::parse("1GiB/node", 8).describe(),
            "128 MiB (134,217,728 bytes), 1 GiB per node, shared by 8 processes");
}

TEST(BudgetDefault, IsAnEighthOfWhatIsAvailable) {
  const Budget budget;
  EXPECT_GT(budget.limit(), 0u);
  EXPECT_LE(budget.limit(), available_memory().bytes / 4);  // not 8: available memory changes
  EXPECT_THAT(budget.describe(), HasSubstr(", one eighth of "));
  EXPECT_THAT(budget.describe(), HasSubstr(" available ("));
}

// What a budget reports in a child of fork, also after the parent's reservations are released
// there.
TEST(BudgetAfterFork, AChildStartsWithWhatItGoesOnUsing) {
  const Budget budget(1000);
  Reservation loader = budget.reserve(600, "batches");
  Reservation array = budget.reserve(100, "read buffers");
  array.keep_in_children();
  Reservation read = budget.reserve_for_read(200, "results");
  const std::string said = in_child([&] {
    std::string text = std::to_string(budget.in_use()) + "/" + std::to_string(budget.peak());
    const Reservation own = budget.reserve_for_read(900, "results");
    text += " " + std::to_string(budget.in_use());
    loader.release();
    read.release();
    text += " " + std::to_string(budget.in_use());
    array.release();
    return text + " " + std::to_string(budget.in_use());
  });
  EXPECT_EQ(said, "100/100 1000 1000 900");
  EXPECT_EQ(budget.in_use(), 900u);
}

TEST(BudgetAfterFork, AGrandchildDoesNotCountTwice) {
  const Budget budget(1000);
  const Reservation loader = budget.reserve(600, "batches");
  const std::string said = in_child([&] {
    const Reservation own = budget.reserve(500, "batches of the child");
    return in_child([&] { return std::to_string(budget.in_use()); });
  });
  EXPECT_EQ(said, "0");
}

// For example in a signal handler, from which parent and child return.
TEST(BudgetAfterFork, AReadThatForksWhileItWaitsGoesOnInTheChild) {
  const Budget budget(1000);
  const Reservation other = budget.reserve_for_read(600, "results");
  pid_t child = -1;
  const auto fork_once = [&] {
    if (child == 0) return;  // called again
    child = ::fork();
    if (child != 0) throw std::runtime_error("this is the parent");
    ::alarm(20);
  };
  try {
    const Reservation read = budget.reserve_for_read(700, "results", fork_once);
    ::_exit(budget.in_use() == 700 ? 0 : 1);  // the child does not count what its parent reads
  } catch (const std::runtime_error&) {
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(BudgetReads, WaitForOneAnother) {
  Watchdog watchdog;
  watchdog.enter("reads wait for one another");
  const Budget budget(1000);
  const Reservation array = budget.reserve(100, "read buffers");
  std::atomic<std::uint64_t> done = 0, most = 0, now = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t i = 0; i < 200; ++i) {
        const std::uint64_t bytes = 300 + 100 * ((i + static_cast<unsigned>(thread)) % 7);
        const Reservation room = budget.reserve_for_read(bytes, "results");
        now += bytes;
        most = std::max<std::uint64_t>(most, now);
        std::this_thread::yield();
        now -= bytes;
        ++done;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 800u);
  EXPECT_LE(most, 900u);
  EXPECT_EQ(budget.in_use(), 100u);
}

TEST(BudgetReads, WhatCanNeverFitFailsAtOnceEvenBesideReads) {
  const Budget budget(1000);
  const Reservation array = budget.reserve(100, "read buffers");
  const Reservation other = budget.reserve_for_read(300, "results");
  EXPECT_FALSE(budget.fits_beside_reads(901));
  EXPECT_TRUE(budget.fits_beside_reads(900));
  EXPECT_THROW(budget.reserve_for_read(901, "results"), Error);
  EXPECT_THROW(budget.require_fits_beside_reads(901, "results"), Error);
  EXPECT_FALSE(budget.try_reserve_for_read(601, "results"));
  EXPECT_TRUE(budget.try_reserve_for_read(600, "results"));
}

// A read that waits for memory fails if a loader then takes that memory for good.
TEST(BudgetReads, AReadThatCanNoLongerFitIsRefused) {
  Watchdog watchdog;
  watchdog.enter("a read that can no longer fit");
  const Budget budget(1000);
  std::optional<Reservation> other(budget.reserve_for_read(600, "results"));
  std::atomic<bool> is_waiting = false;
  std::thread taking([&] {
    while (!is_waiting) std::this_thread::yield();
    const Reservation loader = budget.reserve(400, "batches");
    other.reset();
    while (is_waiting) std::this_thread::yield();
  });
  EXPECT_THROW(budget.reserve_for_read(700, "results", [&] { is_waiting = true; }), Error);
  is_waiting = false;
  taking.join();
}

TEST(BudgetReads, AnInterruptEndsTheWaitAndTheNextIsServed) {
  Watchdog watchdog;
  watchdog.enter("an interrupt ends the wait");
  const Budget budget(1000);
  const Reservation other = budget.reserve_for_read(600, "results");
  const auto interrupt = [] { throw std::runtime_error("interrupted"); };
  EXPECT_THROW(budget.reserve_for_read(700, "results", interrupt), std::runtime_error);
  EXPECT_EQ(budget.reserve_for_read(400, "results").bytes(), 400u);
}

// Memory that is given back repeatedly wakes waiting reads, but does not keep them from checking
// for an interrupt.
TEST(BudgetReads, AnInterruptIsSeenHoweverOftenMemoryIsGivenBack) {
  const Budget budget(1000);
  const Reservation other = budget.reserve_for_read(600, "results");
  std::atomic<bool> interrupted = false, in_time = false;
  std::thread giving_back([&] {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!interrupted && std::chrono::steady_clock::now() < limit) {
      const Reservation briefly = budget.reserve(1, "a moment");
    }
    in_time = interrupted.load();
  });
  const auto interrupt = [] { throw std::runtime_error("interrupted"); };
  EXPECT_THROW(budget.reserve_for_read(700, "results", interrupt), std::runtime_error);
  interrupted = true;
  giving_back.join();
  EXPECT_TRUE(in_time);
}

TEST(Budget, SaysWhatUsesIt) {
  const Budget budget = 1_MiB;
  EXPECT_TRUE(budget.uses().empty());
  const Reservation first = budget.reserve(1000, "read buffers");
  {
    const Reservation second = budget.reserve(24, "read buffers");
    const Reservation other = budget.reserve(8, "a row");
    const auto uses = budget.uses();
    ASSERT_EQ(uses.size(), 2U);
    EXPECT_EQ(uses[0].what, "a row");
    EXPECT_EQ(uses[0].bytes, 8U);
    EXPECT_EQ(uses[1].what, "read buffers");
    EXPECT_EQ(uses[1].bytes, 1024U);
    EXPECT_EQ(uses[1].count, 2U);
  }
  ASSERT_EQ(budget.uses().size(), 1U);
  EXPECT_EQ(budget.uses()[0].bytes, 1000U);
}

}  // namespace
}  // namespace evenkeel
