// An automatic budget in a memory cgroup, next to another process that takes the memory.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <stdexcept>
#include <thread>

#include "base/available_memory.h"
#include "base/mutex.h"
#include "base/reclaimable.h"
#include "evenkeel/budget.h"
#include "tests/cgroup_scope.h"

namespace evenkeel {
namespace {

using NeighbourClock = std::chrono::steady_clock;
constexpr std::uint64_t kBlock = 1_MiB;

// A cache whose blocks occupy memory.
class HeldBlocks : public Reclaimer {
 public:
  explicit HeldBlocks(const Budget& budget) : memory_(budget, "cached blocks") {}
  ~HeldBlocks() override { reclaim(UINT64_MAX); }
  HeldBlocks(const HeldBlocks&) = delete;
  HeldBlocks& operator=(const HeldBlocks&) = delete;
  void serve(const std::weak_ptr<Reclaimer>& self) { memory_.serve(self); }

  bool grow() EXCLUDES(mutex_) {
    if (!memory_.try_grow(kBlock)) return false;
    void* const block =
        ::mmap(nullptr, kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(block, 1, kBlock);
    const MutexLock lock(mutex_);
    blocks_.push_back(block);
    return true;
  }
  void reclaim(std::uint64_t bytes) noexcept override EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    for (std::uint64_t freed = 0; freed < bytes && !blocks_.empty(); freed += kBlock) {
      ::munmap(blocks_.front(), kBlock);
      blocks_.pop_front();
      memory_.shrink(kBlock);
    }
  }

 private:
  ReclaimableMemory memory_;
  Mutex mutex_;
  std::deque<void*> blocks_ GUARDED_BY(mutex_);
};

// Waits long enough for any machine; normally the condition becomes true within a fraction of a
// second. `late_ms`: by how much all sleeps together were too long, because processors were busy.
bool comes_true(const std::function<bool()>& condition, double& late_ms) {
  const auto deadline = NeighbourClock::now() + std::chrono::seconds(20);
  while (!condition()) {
    const auto began = NeighbourClock::now();
    if (began > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::chrono::duration<double, std::milli> took = NeighbourClock::now() - began;
    late_ms += took.count() - 1;
  }
  return true;
}
bool comes_true(const std::function<bool()>& condition) {
  double late_ms = 0;
  return comes_true(condition, late_ms);
}

struct Pipe {
  Pipe() {
    if (::pipe(ends) != 0) throw std::runtime_error("pipe");
  }
  void tell(char what) const {
    if (::write(ends[1], &what, 1) != 1) ::_exit(1);
  }
  // Returns 0 if the other process has ended.
  char hear() const {
    char what = 0;
    return ::read(ends[0], &what, 1) == 1 ? what : '\0';
  }
  void only_hear() const { ::close(ends[1]); }
  void only_tell() const { ::close(ends[0]); }
  int ends[2] = {};
};

// Waits for a byte, takes memory block by block, and keeps it until the next byte.
[[noreturn]] void be_a_neighbour(std::uint64_t bytes, const Pipe& asked, const Pipe& answers) {
  asked.only_hear();
  answers.only_tell();
  if (asked.hear() == 0) ::_exit(1);
  for (std::uint64_t taken = 0; taken < bytes; taken += 2 * kBlock) {
    void* const block =
        ::mmap(nullptr, 2 * kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(block, 1, 2 * kBlock);
    if (taken == 0) answers.tell('b');
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  answers.tell('y');
  asked.hear();
  ::_exit(0);
}

// The first time at which less than the reserve of 16 MiB was left in the cgroup; 0: not yet.
std::int64_t noted_when_short(NeighbourClock::time_point now, std::int64_t noted_ns) {
  if (noted_ns != 0 || available_memory().bytes >= 16_MiB) return noted_ns;
  return now.time_since_epoch().count();
}

// Returns 0, or an exit status that says which check failed.
int work_beside_a_neighbour(const Pipe& ask, const Pipe& answers) {
  ask.only_tell();
  answers.only_hear();
  const Budget budget = Budget::automatic();
  const auto cache = std::make_shared<HeldBlocks>(budget);
  cache->serve(cache);
  if (!comes_true([&] { return !cache->grow() && budget.cached() >= 96_MiB; })) return 2;
  const std::uint64_t before = budget.cached();
  ask.tell('g');
  if (answers.hear() != 'b') return 3;
  const auto began = NeighbourClock::now();
  std::int64_t short_ns = 0;
  double late_ms = 0;
  const bool shrank = comes_true(
      [&] {
        short_ns = noted_when_short(NeighbourClock::now(), short_ns);
        return budget.cached() < before;
      },
      late_ms);
  const std::int64_t ended_ns = NeighbourClock::now().time_since_epoch().count();
  const double took = static_cast<double>(ended_ns - began.time_since_epoch().count()) / 1e6;
  const double from_short = short_ns == 0 ? 0 : static_cast<double>(ended_ns - short_ns) / 1e6;
  if (answers.hear() != 'y') return 4;
  const std::uint64_t after = budget.cached();
  std::printf(
      "automatic budget: %.0f MiB cached; less %.0f ms after the neighbour began and %.0f ms after "
      "memory was short; then %.0f MiB\n",
      static_cast<double>(before) / 1048576, took, from_short,
      static_cast<double>(after) / 1048576);
  std::fflush(stdout);
  if (!shrank) return 5;
  if (from_short > 100 && late_ms < 50) return 8;  // on a busy machine, it may take longer
  if (after + 32_MiB > before || budget.limit() < 16_MiB) return 6;
  ask.tell('e');
  // The neighbour ends, so the memory is free again.
  const std::uint64_t limit = budget.limit();
  return comes_true([&] { return budget.limit() > limit; }) ? 0 : 7;
}

TEST(MemoryAutomatic, ABudgetShrinksWhenANeighbourTakesTheMemory) {
  const CgroupScope cgroup(256_MiB);
  if (!cgroup.why_not().empty()) GTEST_SKIP() << cgroup.why_not();
  const Pipe ask, answers;
  // Forked first, because a child of the other process would share its pages.
  const pid_t neighbour = ::fork();
  if (neighbour == 0) {
    if (!cgroup.add(::getpid())) ::_exit(1);
    be_a_neighbour(160_MiB, ask, answers);
  }
  const pid_t job = ::fork();
  if (job == 0) {
    if (!cgroup.add(::getpid())) ::_exit(1);
    ::_exit(work_beside_a_neighbour(ask, answers));
  }
  ask.only_hear();
  answers.only_hear();
  int status = 0, status_of_neighbour = 0;
  ASSERT_EQ(::waitpid(job, &status, 0), job);
  ASSERT_EQ(::waitpid(neighbour, &status_of_neighbour, 0), neighbour);
  EXPECT_TRUE(WIFEXITED(status)) << "the job was killed";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "see work_beside_a_neighbour";
  EXPECT_TRUE(WIFEXITED(status_of_neighbour)) << "the neighbour was killed";
  EXPECT_EQ(cgroup.oom_kills(), 0u);
}

}  // namespace
}  // namespace evenkeel
