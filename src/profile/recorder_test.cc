#include "profile/recorder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "meter/test_child.h"
#include "tests/forked.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

void idle(const TestChild::Steps& steps) {
  steps.tell();
  steps.until_over();
}

std::vector<std::string> paths_of(const std::vector<FileWatch::File>& files) {
  std::vector<std::string> paths;
  for (const FileWatch::File& file : files) paths.push_back(file.path);
  return paths;
}

void write_mark(const MarkFile& file, std::chrono::steady_clock::time_point at, int number) {
  const int fd = ::open(file.path().c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  const std::string line =
      std::to_string(at.time_since_epoch().count()) + " 1 " + std::to_string(number) + "\n";
  ASSERT_EQ(::write(fd, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  ::close(fd);
}

TEST(Recorder, NoSuchProcessIsAnError) {
  TestChild child(idle);
  const pid_t pid = child.pid();
  child.end();
  try {
    const Recorder recorder(pid, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kSystem);
    EXPECT_EQ(error.code(), ESRCH);
  }
}

TEST(Recorder, EverySampleIsInTheRunAndTimeOnlyGrows) {
  const TestChild child(idle);
  child.wait();
  Recorder recorder(child.pid(), {.interval = std::chrono::milliseconds(20)});
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(recorder.sample());
  EXPECT_TRUE(recorder.sample_all());
  EXPECT_EQ(recorder.living(), 1u);
  const ProfileRun run = recorder.finish();
  ASSERT_EQ(run.samples.size(), 101u);
  for (std::size_t i = 1; i < run.samples.size(); ++i) {
    EXPECT_GT(run.samples[i].seconds, run.samples[i - 1].seconds);
    EXPECT_EQ(run.samples[i].processes, 1u);
  }
  EXPECT_EQ(run.seconds, run.samples.back().seconds);
  EXPECT_DOUBLE_EQ(run.interval_seconds, 0.02);
  EXPECT_GT(run.own_cpu_seconds, 0);
  EXPECT_THAT(run.started, testing::MatchesRegex("20..-..-..T..:..:..Z"));
}

TEST(MemoryRecorder, SeesEachKindGrowInTheNextSample) {
  const TestChild child([](const TestChild::Steps& steps) {
    steps.done();
    touched_pages(16_MiB);
    steps.done();
    auto* shared = static_cast<char*>(
        ::mmap(nullptr, 8_MiB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (std::size_t at = 0; at < 8_MiB; at += 4096) shared[at] = 1;
    steps.done();
  });
  child.wait();
  Recorder recorder(child.pid(), {});
  recorder.sample();
  const ProfileSample before = recorder.latest();
  child.step();
  recorder.sample();
  // The kernel counts in batches for each processor, and the child may have changed processors.
  EXPECT_NEAR(double(recorder.latest().anon - before.anon), 16_MiB, 0.125 * 16_MiB);
  EXPECT_EQ(recorder.latest().shmem, before.shmem);
  child.step();
  recorder.sample_all();  // sample() may count it as file: see ProcessTree::sample_resident
  EXPECT_NEAR(double(recorder.latest().shmem - before.shmem), 8_MiB, 0.125 * 8_MiB);
}

TEST(Recorder, AProcessThatHasEndedEndsTheRun) {
  TestChild child(idle);
  child.wait();
  Recorder recorder(child.pid(), {});
  EXPECT_TRUE(recorder.sample_all());
  child.end();
  EXPECT_FALSE(recorder.sample_all());
  EXPECT_EQ(recorder.living(), 0u);
  EXPECT_GT(recorder.finish().samples.front().rss(), 0u);
}

TEST(Recorder, MarksCountFromTheStart) {
  const TestChild child(idle);
  child.wait();
  MarkFile marks;
  Recorder recorder(child.pid(), {.marks = &marks});
  const auto now = std::chrono::steady_clock::now();
  recorder.start();
  const auto started = std::chrono::steady_clock::now();
  write_mark(marks, now - std::chrono::seconds(5), 1);  // before the start
  write_mark(marks, started + std::chrono::seconds(7), 2);
  const ProfileRun run = recorder.finish();
  ASSERT_EQ(run.marks.size(), 2u);
  EXPECT_EQ(run.marks[0].text, "1");
  EXPECT_EQ(run.marks[0].seconds, 0);
  EXPECT_EQ(run.marks[1].text, "2");
  EXPECT_NEAR(run.marks[1].seconds, 7, std::chrono::duration<double>(started - now).count());
}

TEST(Recorder, MarksLeftOutAreNoted) {
  const TestChild child(idle);
  child.wait();
  MarkFile marks;
  Recorder recorder(child.pid(), {.marks = &marks});
  for (int i = 0; i < 1003; ++i) write_mark(marks, std::chrono::steady_clock::now(), i);
  const ProfileRun run = recorder.finish();
  EXPECT_EQ(run.marks.size(), MarkFile::kMost);
  EXPECT_THAT(run.notes, testing::Contains(HasSubstr("3 marks were left out beyond the 1,000")));
}

TEST(Recorder, OnlyFilesThatMatchAPatternAreWatched) {
  const TempFolder folder;
  folder.write("a.bin", "x");
  folder.write("b.bin", "x");
  const std::string other = folder.write("other", random_bytes(2_MiB));
  const TestChild child([&](const TestChild::Steps& steps) {
    if (::open(other.c_str(), O_RDONLY | O_CLOEXEC) < 0) ::_exit(1);
    idle(steps);
  });
  child.wait();
  Recorder recorder(child.pid(), {.files = {folder.path("*.bin"), folder.path("a*")}});
  recorder.sample_all();
  EXPECT_THAT(paths_of(recorder.files()),
              UnorderedElementsAre(folder.path("a.bin"), folder.path("b.bin")));
}

TEST(Recorder, APatternThatMatchesNothingIsNoted) {
  const TempFolder folder;
  const TestChild child(idle);
  child.wait();
  Recorder recorder(child.pid(), {.files = {folder.path("*.bin")}});
  recorder.sample_all();
  EXPECT_THAT(recorder.finish().notes,
              ElementsAre("No file matched the patterns of files to watch."));
}

TEST(Recorder, AFileCreatedLaterIsFoundByItsPattern) {
  const TempFolder folder;
  const TestChild child(idle);
  child.wait();
  Recorder recorder(child.pid(), {.files = {folder.path("*.bin")}});
  EXPECT_THAT(recorder.files(), IsEmpty());
  folder.write("late.bin", "x");
  recorder.sample_all();
  EXPECT_THAT(paths_of(recorder.files()), ElementsAre(folder.path("late.bin")));
}

TEST(Recorder, FindsTheDataFilesOfTheProcess) {
  const TempFolder folder;
  const std::string large = folder.write("large", random_bytes(2_MiB));
  const std::string small = folder.write("small", random_bytes(1000));
  const TestChild child([&](const TestChild::Steps& steps) {
    for (const std::string& path : {large, small}) {
      if (::open(path.c_str(), O_RDONLY | O_CLOEXEC) < 0) ::_exit(1);
    }
    idle(steps);
  });
  child.wait();
  Recorder recorder(child.pid(), {});
  recorder.sample_all();
  EXPECT_THAT(paths_of(recorder.files()), ElementsAre(large));
}

TEST(Recorder, WithoutFilesNothingIsCached) {
  const TestChild child(idle);
  child.wait();
  Recorder recorder(child.pid(), {});
  recorder.sample();
  EXPECT_EQ(recorder.latest().cache, 0u);
  EXPECT_THAT(recorder.finish().notes, ElementsAre(HasSubstr("No data file of 1 MiB or more")));
}

TEST(MemoryRecorder, OnlyPagesAddedToTheCacheCount) {
  const auto disk = disk_folder();
  if (!disk) GTEST_SKIP() << "no disk to read from";
  const TempFolder folder(*disk);
  const std::string path = folder.write_through("data", random_bytes(8_MiB));
  if (drop_file_cache(path).value_or(1) != 0) GTEST_SKIP() << "the cache cannot be dropped";
  const TestChild child(idle);
  child.wait();
  Recorder recorder(child.pid(), {.files = {path}});
  recorder.sample_all();
  EXPECT_EQ(recorder.latest().cache, 0u);
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string bytes(8_MiB, '\0');
  ASSERT_EQ(::read(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  recorder.sample_all();
  EXPECT_GT(recorder.latest().cache, 7_MiB);  // the kernel may have evicted a page
  EXPECT_LE(recorder.latest().cache, 8_MiB);
  EXPECT_GE(recorder.latest().memory(), recorder.latest().cache);
  EXPECT_EQ(recorder.finish().files.at(0).cached_before, 0u);
}

TEST(Recorder, UnknownValuesOfAnotherUsersProcessAreNoted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const TestChild child(idle);
  child.wait();
  const std::string said = in_child([&]() -> std::string {
    if (!become_nobody()) return "cannot become nobody";
    Recorder recorder(child.pid(), {});
    recorder.sample_all();
    const ProfileSample& sample = recorder.latest();
    std::string text = sample.rss() > 0 ? "rss known" : "no rss";
    if (sample.pss == ProfileSample::kUnknown) text += ", pss unknown";
    if (sample.cache == ProfileSample::kUnknown) text += ", cache unknown";
    for (const std::string& note : recorder.finish().notes) text += "\n" + note;
    return text;
  });
  EXPECT_THAT(said, HasSubstr("rss known, pss unknown, cache unknown\n"));
  EXPECT_THAT(said, HasSubstr("Which files it has open or mapped is not known"));
  EXPECT_THAT(said, HasSubstr("Bytes read from disk are not known"));
  EXPECT_THAT(said, testing::Not(HasSubstr("No data file")));
}

TEST(Recorder, AUsersOwnProcessHidesNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  EXPECT_EQ(in_child([]() -> std::string {
              if (!become_nobody()) return "cannot become nobody";
              // The process ends while it is recorded. What the kernel then refuses is not hidden.
              TestChild child(idle);
              child.wait();
              Recorder recorder(child.pid(), {});
              recorder.sample();
              child.become_zombie();
              recorder.sample_all();
              return recorder.latest().cache == 0 ? "known" : "unknown";
            }),
            "known");
}

}  // namespace
}  // namespace evenkeel
