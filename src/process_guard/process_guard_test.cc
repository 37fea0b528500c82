// labels: threads
#include "process_guard/process_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "guard/test_mapping.h"

namespace evenkeel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kBytes = 16_MiB;

TEST(Matches, EverythingWithoutPatterns) { EXPECT_TRUE(matches({}, "/data/a.bin")); }

TEST(Matches, TheFileNameWithoutASlash) {
  EXPECT_TRUE(matches({"*.bin"}, "/data/a.bin"));
  EXPECT_TRUE(matches({"a.bin"}, "/data/a.bin"));
  EXPECT_TRUE(matches({"?.[bc]in"}, "/data/a.bin"));
  EXPECT_FALSE(matches({"*.bin"}, "/data.bin/a.dat"));
  EXPECT_FALSE(matches({"data"}, "/data/a.bin"));
}

TEST(Matches, TheWholePathWithASlash) {
  EXPECT_TRUE(matches({"/data/*.bin"}, "/data/a.bin"));
  EXPECT_TRUE(matches({"/data/a.bin"}, "/data/a.bin"));
  EXPECT_TRUE(matches({"/data/../data/./a.bin"}, "/data/a.bin"));
  EXPECT_FALSE(matches({"/data/*.bin"}, "/other/a.bin"));
  EXPECT_FALSE(matches({"/data/a"}, "/data/a.bin"));
}

TEST(Matches, PathsRelativeToTheCurrentFolder) {
  const std::string here = std::filesystem::current_path().string();
  EXPECT_TRUE(matches({"./a.bin"}, here + "/a.bin"));
  EXPECT_TRUE(matches({"sub/*.bin"}, here + "/sub/a.bin"));
  EXPECT_FALSE(matches({"./a.bin"}, "/elsewhere/a.bin"));
}

TEST(Matches, IfOneOfSeveralPatternsDoes) {
  EXPECT_TRUE(matches({"*.npy", "*.bin"}, "/data/a.bin"));
  EXPECT_FALSE(matches({"*.npy", "*.dat"}, "/data/a.bin"));
}

// A mapping of this process that is treated like one of another process.
class FakeMapping : public GuardedMapping {
 public:
  FakeMapping(const ObservedMapping& seen, std::atomic<int>& living, const std::atomic<bool>& lost)
      : GuardedMapping(seen.key, seen.range, seen.offset), living_(living), lost_(lost) {
    ++living_;
  }
  ~FakeMapping() override { --living_; }
  std::string name() const override { return "a fake"; }
  bool still_there() const override { return !lost_; }
  int let_go(AddressRange range) override {
    void* at = reinterpret_cast<void*>(range.begin);
    return ::madvise(at, range.end - range.begin, MADV_DONTNEED) == 0 ? 0 : errno;
  }
  int advise(AddressRange, int) override { return 0; }
  bool count_resident(AddressRange, AccessSample&) const override { return false; }

 private:
  std::atomic<int>& living_;
  const std::atomic<bool>& lost_;
};

class FakeSource : public MappingSource {
 public:
  void wait(std::chrono::nanoseconds most) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::min<std::chrono::nanoseconds>(most, std::chrono::milliseconds(5)),
                      [this] { return stop_; });
  }
  void interrupt() override {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  std::vector<ObservedMapping> observe() override {
    std::lock_guard lock(mutex_);
    ++looks;
    if (!failing.empty()) throw Error(ErrorKind::kInvalid, "look", failing);
    return seen_;
  }
  std::string path(const ObservedMapping& mapping) const override {
    std::lock_guard lock(mutex_);
    return paths_.at(mapping.file);
  }
  std::unique_ptr<GuardedMapping> make_guarded(const ObservedMapping& mapping, bool) override {
    ++made;
    return std::make_unique<FakeMapping>(mapping, living, lost);
  }
  std::vector<std::string> notes() const override { return {"a note of the source"}; }

  void set(const std::vector<ObservedMapping>& seen) {
    std::lock_guard lock(mutex_);
    seen_ = seen;
    looks = 0;
  }
  void name(std::uint64_t file, const std::string& path) {
    std::lock_guard lock(mutex_);
    paths_[file] = path;
  }
  // Waits until the guard has processed the current mappings.
  void settle() {
    const int before = looks;
    ASSERT_TRUE(until([&] { return looks >= before + 2; },
                      [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }));
  }
  void fail(const std::string& why) {
    std::lock_guard lock(mutex_);
    failing = why;
  }

  std::atomic<int> looks = 0, made = 0, living = 0;
  std::atomic<bool> lost = false;  // the mappings do not exist any more

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::vector<ObservedMapping> seen_;
  std::map<std::uint64_t, std::string> paths_;
  std::string failing;
};

class ProcessGuardTest : public testing::Test {
 protected:
  ProcessGuardTest() { source_.name(1, file_.path()); }
  ObservedMapping seen(const TestMapping& map, std::uint64_t key = 1,
                       std::uint64_t generation = 1) const {
    struct stat status;
    ::fstat(file_.fd(), &status);
    const auto begin = reinterpret_cast<std::uint64_t>(map.words());
    return {.key = key,
            .generation = generation,
            .pid = ::getpid(),
            .range = {begin, begin + kBytes},
            .offset = 0,
            .device = status.st_dev,
            .inode = status.st_ino,
            .file = 1,
            .descriptor = {}};
  }
  static ObservedMapping seen(const NumberFile& file, const TestMapping& map, std::uint64_t key) {
    struct stat status;
    ::fstat(file.fd(), &status);
    const auto begin = reinterpret_cast<std::uint64_t>(map.words());
    return {.key = key,
            .generation = 1,
            .pid = ::getpid(),
            .range = {begin, begin + file.bytes()},
            .offset = 0,
            .device = status.st_dev,
            .inode = status.st_ino,
            .file = key,
            .descriptor = {}};
  }
  static ProcessGuardOptions options(std::vector<std::string> files = {}) {
    return {.guard = {.budget = 4_MiB, .access = GuardAccess::kLeave}, .files = std::move(files)};
  }
  std::vector<std::string> failures(ProcessGuard& guard) const {
    auto all = guard.report().failures;
    std::erase(all, "a note of the source");
    return all;
  }
  const NumberFile file_{kBytes};
  const TestMapping map_{file_};
  FakeSource source_;
};

TEST_F(ProcessGuardTest, BeginsEmpty) {
  ProcessGuard guard(options(), source_);
  source_.settle();
  EXPECT_EQ(guard.files(), 0u);
  EXPECT_EQ(guard.report().mappings, 0u);
  EXPECT_EQ(guard.report().budget, 4_MiB);
}

TEST_F(ProcessGuardTest, ReleasesWhatIsRead) {
  if (!file_.can_be_dropped()) GTEST_SKIP() << "the page cache cannot be dropped or counted here";
  source_.set({seen(map_)});
  ProcessGuard guard(options(), source_);
  source_.settle();
  EXPECT_TRUE(until([&] { return guard.report().bytes_released >= kBytes; },
                    [&] { EXPECT_EQ(wrong_in_scan(map_, file_.words()), 0u); }));
  EXPECT_EQ(guard.files(), 1u);
  EXPECT_EQ(guard.report().mappings, 1u);
  EXPECT_THAT(failures(guard), IsEmpty());
}

TEST_F(ProcessGuardTest, MappingsComeAndGo) {
  const TestMapping other(file_);
  ProcessGuard guard(options(), source_);
  source_.set({seen(map_, 1)});
  source_.settle();
  EXPECT_EQ(guard.report().mappings, 1u);
  source_.set({seen(map_, 1), seen(other, 2)});
  source_.settle();
  EXPECT_EQ(guard.report().mappings, 2u);
  EXPECT_EQ(guard.files(), 1u);  // the same file
  source_.set({seen(other, 2)});
  source_.settle();
  EXPECT_EQ(guard.report().mappings, 1u);
  source_.set({});
  source_.settle();
  EXPECT_EQ(guard.report().mappings, 0u);
  EXPECT_EQ(source_.living, 0);
  EXPECT_EQ(source_.made, 2);  // one for each mapping
  EXPECT_THAT(failures(guard), IsEmpty());
}

TEST_F(ProcessGuardTest, AnotherGenerationIsAnotherMapping) {
  const TestMapping other(file_);
  source_.set({seen(map_, 1, 1)});
  ProcessGuard guard(options(), source_);
  source_.settle();
  source_.set({seen(other, 1, 2)});
  source_.settle();
  EXPECT_EQ(source_.made, 2);
  EXPECT_EQ(source_.living, 1);
  EXPECT_EQ(guard.report().mappings, 1u);
}

// In the guard's own process it would be one: remove() was not called.
TEST_F(ProcessGuardTest, AMappingThatTheProgramUnmappedIsNoFailure) {
  if (!file_.can_be_dropped()) GTEST_SKIP() << "the page cache cannot be dropped or counted here";
  std::optional<TestMapping> map(file_);
  source_.set({seen(*map)});
  ProcessGuard guard(options(), source_);
  source_.settle();
  ASSERT_EQ(source_.living, 1);
  source_.lost = true;
  map.reset();
  // Plain reads fill the page cache as well, so the evictor has to release pages.
  std::vector<std::byte> all(kBytes);
  EXPECT_TRUE(until([&] { return source_.living == 0; },
                    [&] { ASSERT_EQ(read_upto(file_.fd(), 0, all, file_.path()), kBytes); }));
  EXPECT_THAT(failures(guard), IsEmpty());
}

// Each file fits the budget alone and is unmapped before the next is mapped.
TEST_F(ProcessGuardTest, FilesThatAreReadOneAfterAnotherShareTheBudget) {
  if (!file_.can_be_dropped()) GTEST_SKIP() << "the page cache cannot be dropped or counted here";
  constexpr std::uint64_t kShard = 3_MiB, kShards = 6;
  std::vector<std::unique_ptr<NumberFile>> files;
  ProcessGuard guard(options(), source_);
  const auto cached = [&] {
    std::uint64_t bytes = 0;
    for (const auto& file : files) bytes += file->cached();
    return bytes;
  };
  for (std::uint64_t i = 0; i < kShards; ++i) {
    files.push_back(std::make_unique<NumberFile>(kShard));
    const NumberFile& file = *files.back();
    const TestMapping map(file);
    source_.name(10 + i, file.path());
    source_.set({seen(file, map, 10 + i)});
    source_.settle();
    EXPECT_EQ(wrong_in_scan(map, file.words()), 0u);
    source_.set({});
    source_.settle();
  }
  EXPECT_EQ(guard.files(), kShards);
  // The last files may stay, because they fit the budget.
  EXPECT_TRUE(until([&] { return cached() <= 4_MiB; },
                    [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }));
  EXPECT_GE(guard.report().bytes_released, (kShards - 2) * kShard);
}

// While a file is unmapped it is closed, and opened by its name to release its pages.
TEST_F(ProcessGuardTest, AFileThatIsMappedAgainAfterItWasRenamedIsReleasedUnderItsNewName) {
  if (!file_.can_be_dropped()) GTEST_SKIP() << "the page cache cannot be dropped or counted here";
  const NumberFile file(kBytes);
  const std::string renamed = file.path() + ".new";
  std::vector<std::byte> all(kBytes);
  source_.name(10, file.path());
  source_.name(11, renamed);
  ProcessGuard guard(options(), source_);
  const auto map_and_read = [&](std::uint64_t key) {
    const TestMapping map(file);
    source_.set({seen(file, map, key)});
    source_.settle();
    EXPECT_EQ(wrong_in_scan(map, file.words()), 0u);
    source_.set({});
    source_.settle();
  };
  map_and_read(10);
  std::filesystem::rename(file.path(), renamed);
  map_and_read(11);
  EXPECT_EQ(read_upto(file.fd(), 0, all, renamed), kBytes);
  EXPECT_TRUE(until([&] { return file.cached() <= 4_MiB; },
                    [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }));
  std::filesystem::rename(renamed, file.path());  // which the destructor removes
}

TEST_F(ProcessGuardTest, AFileThatFitsIsReportedAfterItWasUnmapped) {
  if (!file_.can_be_dropped()) GTEST_SKIP() << "the page cache cannot be dropped or counted here";
  const NumberFile file(3_MiB), next(1_MiB);
  const TestMapping map(file), next_map(next);
  source_.name(10, file.path());
  source_.name(11, next.path());
  ProcessGuard guard(options(), source_);
  source_.set({seen(file, map, 10)});
  source_.settle();
  EXPECT_EQ(wrong_in_scan(map, file.words()), 0u);
  source_.set({});
  source_.settle();
  source_.set({seen(next, next_map, 11)});  // a change makes the evictor count
  source_.settle();
  const std::uint64_t cached = file.cached();
  EXPECT_GT(cached, 2_MiB);  // the kernel may have evicted a page, the guard has not
  EXPECT_GE(guard.report().peak_cached, cached);
}

TEST_F(ProcessGuardTest, NoMappingIsKeptAfterItsEnd) {
  source_.set({seen(map_)});
  {
    ProcessGuard guard(options(), source_);
    source_.settle();
    EXPECT_EQ(source_.living, 1);
  }
  EXPECT_EQ(source_.living, 0);
}

TEST_F(ProcessGuardTest, FilesThatMatchNoPatternAreLeftAlone) {
  source_.set({seen(map_)});
  ProcessGuard none(options({"*.never"}), source_);
  source_.settle();
  EXPECT_EQ(none.files(), 0u);
  EXPECT_EQ(source_.made, 0);
}

TEST_F(ProcessGuardTest, APatternMayBeTheWholePath) {
  source_.set({seen(map_)});
  ProcessGuard guard(options({"*.never", file_.path()}), source_);
  source_.settle();
  EXPECT_EQ(guard.files(), 1u);
}

TEST_F(ProcessGuardTest, AFileThatCannotBeOpenedIsNotedOnce) {
  const TestMapping other(file_);
  source_.name(1, "/no/such/file");
  source_.set({seen(map_, 1), seen(other, 2)});
  ProcessGuard guard(options(), source_);
  source_.settle();
  EXPECT_EQ(guard.files(), 0u);
  EXPECT_EQ(guard.report().mappings, 0u);
  EXPECT_THAT(failures(guard),
              ElementsAre(HasSubstr("/no/such/file cannot be opened by the guard")));
}

// The path may belong to another file by now.
TEST_F(ProcessGuardTest, AnotherFileUnderThatNameIsNotTaken) {
  const NumberFile other(1_MiB);
  source_.name(1, other.path());
  source_.set({seen(map_)});
  ProcessGuard guard(options(), source_);
  source_.settle();
  EXPECT_EQ(guard.files(), 0u);
  EXPECT_THAT(failures(guard), ElementsAre(HasSubstr(other.path())));
}

TEST_F(ProcessGuardTest, ASourceThatFailsIsNotedAndReadAgain) {
  source_.set({seen(map_)});
  source_.fail("no mappings today");
  ProcessGuard guard(options(), source_);
  source_.settle();
  EXPECT_EQ(guard.files(), 0u);
  EXPECT_THAT(failures(guard), ElementsAre(HasSubstr("no mappings today")));
  source_.fail("");
  source_.settle();
  EXPECT_EQ(guard.files(), 1u);
}

TEST_F(ProcessGuardTest, ReportsTheNotesOfTheSource) {
  ProcessGuard guard(options(), source_);
  EXPECT_THAT(guard.report().failures, ElementsAre("a note of the source"));
}

}  // namespace
}  // namespace evenkeel
