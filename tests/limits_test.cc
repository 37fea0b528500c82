// Systems with tight limits: few descriptors, no locked memory, a small address space, no io_uring,
// a small cgroup. And many readers at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <chrono>
#include <cstddef>
#include <thread>

#include "base/text_file.h"
#include "evenkeel/tokens.h"
#include "tests/cgroup_scope.h"
#include "tests/every_engine.h"
#include "tests/forked.h"
#include "tests/sanitizers.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kLimitColumns = 8, kLimitRows = 100'000;  // 3.2 MB

bool set_limit(int which, rlim_t value) {
  const rlimit limit{value, value};
  return ::setrlimit(static_cast<__rlimit_resource_t>(which), &limit) == 0;
}

// From now on, these calls fail with `code` in this process and its children.
bool forbid_io_uring(unsigned code) {
  constexpr auto kNumber = static_cast<unsigned>(offsetof(seccomp_data, nr));
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SYS_io_uring_setup, 0, 2),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SYS_io_uring_register, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | code),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

class Limits : public testing::Test {
 protected:
  Limits() : folder_(disk_folder().value_or(std::filesystem::temp_directory_path())) {}
  EveryEngine numbers() const {
    return {.paths = {counting_file(folder_, "numbers", kLimitRows * kLimitColumns)}};
  }
  const TempFolder folder_;
};

TEST_F(Limits, TenThousandShardsAndTwoHundredAndFiftySixDescriptors) {
  constexpr std::uint64_t kShards = 10'000, kRowsEach = 4;
  EveryEngine all{.paths = {}, .budget = 128_MiB, .picks = 300, .rows_per_chunk = 100, .chunks = 5};
  for (std::uint64_t i = 0; i < kShards; ++i) {
    all.paths.push_back(counting_file(folder_, "shard" + std::to_string(i),
                                      kRowsEach * kLimitColumns, i * kRowsEach * kLimitColumns));
  }
  for (const EngineKind engine : kAllEngines) {
    EXPECT_EQ(in_child([&] {
                if (!set_limit(RLIMIT_NOFILE, 256)) return std::string("no limit");
                return all.read(engine);
              }),
              "right");
  }
}

TEST_F(Limits, NoLockedMemory) {
  const EveryEngine all = numbers();
  folder_.open_to_everyone();
  EXPECT_EQ(in_child([&] {
              if (!set_limit(RLIMIT_MEMLOCK, 0)) return std::string("no limit");
              if (::getuid() == 0 && !become_nobody()) return std::string("still root");
              return all.read_by_all();
            }),
            "right");
}

// Engines that read in small pieces work although the file could not be mapped. The errors of the
// others name the limit.
TEST_F(Limits, SmallAddressSpace) {
  if (kUnderAsan || kUnderTsan) GTEST_SKIP() << "a sanitizer takes terabytes of addresses";
  const std::string path = counting_file(folder_, "numbers", kLimitRows * kLimitColumns);
  std::filesystem::resize_file(path, 1_GiB);  // extended by a hole
  const EveryEngine some{.paths = {path}, .picks = 0, .chunks = 2};
  for (const EngineKind engine : kAllEngines) {
    const std::string said = in_child([&] {
      const auto status = read_text_file("/proc/self/status").value_or("");
      const std::uint64_t now = number_after(status, "VmSize:").value_or(0) * 1024;
      if (!set_limit(RLIMIT_AS, now + 100_MiB)) return std::string("no limit");
      const Array array = Array::open(path, counted(kLimitColumns, 2_MiB, engine));
      const std::vector<std::uint64_t> rows{0, 5, 77'777};
      return gathered(array, rows) == rows_of_counting(rows, kLimitColumns) ? std::string("right")
                                                                            : "wrong";
    });
    const bool maps_all =
        engine == EngineKind::kMap || engine == EngineKind::kAdvise || engine == EngineKind::kFill;
    if (maps_all && said != "right") {
      EXPECT_THAT(said, HasSubstr("address-space limit"));
    } else {
      EXPECT_EQ(said, "right") << engine_name(engine);
    }
  }
}

TEST_F(Limits, ThreadsThatCannotBeStarted) {
  if (kUnderAsan || kUnderTsan) GTEST_SKIP() << "a sanitizer takes terabytes of addresses";
  const EveryEngine all = numbers();
  // Not enough for the stack of a thread (8 MiB).
  EXPECT_EQ(in_child([&] {
              const auto status = read_text_file("/proc/self/status").value_or("");
              const std::uint64_t now = number_after(status, "VmSize:").value_or(0) * 1024;
              if (!set_limit(RLIMIT_AS, now + 7_MiB)) return std::string("no limit");
              for (const EngineKind engine : {EngineKind::kRead, EngineKind::kDirect}) {
                if (std::string said = all.read(engine); said != "right") return said;
              }
              return std::string("right");
            }),
            "right");
}

TEST_F(Limits, IoUringForbiddenBySeccomp) {
  const EveryEngine all = numbers();
  for (const unsigned code : {EPERM, ENOSYS}) {
    EXPECT_EQ(in_child([&] {
                if (!forbid_io_uring(code)) return std::string("no filter");
                return all.read_by_all();
              }),
              "right");
    const std::string how = in_child([&] {
      if (!forbid_io_uring(code)) return std::string("no filter");
      const Array array =
          Array::open(all.paths, counted(kLimitColumns, 2_MiB, EngineKind::kDirect));
      return array.engine().how;
    });
    EXPECT_THAT(how, HasSubstr("threads (io_uring is not allowed here ("));
  }
}

// The filter is installed while the ring is in use: one read fails, the next uses threads.
TEST_F(Limits, IoUringForbiddenInTheMiddleOfThings) {
  const EveryEngine all = numbers();
  const std::string said = in_child([&] {
    const Array array = Array::open(all.paths, counted(kLimitColumns, 2_MiB, EngineKind::kDirect));
    if (array.engine().how.find("io_uring,") == std::string::npos) return std::string("no ring");
    const std::vector<std::uint64_t> rows{1, 5, 77'777, 90'000};
    const Numbers right = rows_of_counting(rows, kLimitColumns);
    if (gathered(array, rows) != right) return std::string("wrong before");
    if (!forbid_io_uring(EPERM)) return std::string("no filter");
    const Error error = error_of([&] { gathered(array, rows); });
    if (error.code() != EPERM) return std::string("the first: ") + error.what();
    for (int i = 0; i < 3; ++i) {
      if (gathered(array, rows) != right) return std::string("wrong after");
    }
    for (const Chunk& chunk : array.chunks(5'000)) {
      if (!counts_on(chunk)) return std::string("wrong chunk");
    }
    return "then right, by " + array.engine().how;
  });
  if (said == "no ring") GTEST_SKIP() << "io_uring is not allowed here";
  EXPECT_THAT(said, HasSubstr("then right, by O_DIRECT, threads (io_uring broke down"));
}

TEST_F(Limits, SixtyFourProcessesAtOnce) {
  const EveryEngine all = numbers();
  constexpr int kProcesses = 64;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(all.read(kAllEngines[i % std::size(kAllEngines)]) == "right" ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

// The same with one array that was opened before.
TEST_F(Limits, SixtyFourChildrenOfOneArray) {
  if (kUnderTsan) GTEST_SKIP() << "ThreadSanitizer ends children that start threads after fork";
  const EveryEngine all = numbers();
  const Array array = Array::open(all.paths, counted(kLimitColumns, 2_MiB));
  const std::vector<std::uint64_t> rows{1, 5, 77'777, 90'000};
  const Numbers right = rows_of_counting(rows, kLimitColumns);
  ASSERT_EQ(gathered(array, rows), right);
  std::vector<pid_t> children;
  for (int i = 0; i < 64; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(gathered(array, rows) == right ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(gathered(array, rows), right);
}

// 16 MiB for the data and 16 MiB for the program.
TEST_F(Limits, ACgroupOfThirtyTwoMebibytesAndABudgetOfSixteen) {
  if (kUnderAsan || kUnderTsan) GTEST_SKIP() << "a sanitizer's own memory would be counted";
  const std::uint64_t rows = 64_MiB / 4 / kLimitColumns;
  const EveryEngine all{.paths = {counting_file(folder_, "numbers", rows * kLimitColumns)},
                        .budget = 16_MiB,
                        .picks = 500,
                        .rows_per_chunk = 2'000,
                        .chunks = 3};
  {
    const int fd = ::open(all.paths[0].c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(::fsync(fd), 0);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
  for (const EngineKind engine : kAllEngines) {
    if (engine == EngineKind::kMap) continue;  // has no budget, so the kernel would thrash
    const CgroupScope cgroup(32_MiB);
    if (!cgroup.why_not().empty()) GTEST_SKIP() << cgroup.why_not();
    EXPECT_EQ(in_child([&] {
                if (!cgroup.add(::getpid())) return std::string("not in the cgroup");
                return all.read(engine);
              }),
              "right");
    EXPECT_EQ(cgroup.oom_kills(), 0u) << engine_name(engine);
  }
  const CgroupScope cgroup(32_MiB);
  EXPECT_EQ(in_child([&] {
              if (!cgroup.add(::getpid())) return std::string("not in the cgroup");
              const Tokens tokens =
                  Tokens::open(all.paths, {.budget = 16_MiB, .dtype = DType::of<std::uint32_t>()});
              TokenLoader loader(tokens, {.batch_size = 12, .block_size = 1024});
              for (int i = 0; i < 500; ++i) {
                const Batch& batch = *loader.next();
                const auto x = batch.x<std::int64_t>();
                const auto origins = loader.explain(batch.step());
                for (std::size_t row = 0; row < x.size(); ++row) {
                  if (x[row][1000] != static_cast<std::int64_t>(origins[row].start + 1000)) {
                    return std::string("wrong tokens");
                  }
                }
              }
              return std::string("right");
            }),
            "right");
  EXPECT_EQ(cgroup.oom_kills(), 0u);
}

}  // namespace
}  // namespace evenkeel
