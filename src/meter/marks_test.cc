#include "meter/marks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "evenkeel/mark.h"
#include "tests/forked.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

std::string clean(std::string_view text) { return std::string(clean_mark_text(text).view()); }

std::uint64_t now() {
  timespec time;
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

void append(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::app | std::ios::binary) << bytes;
}

// Runs in a child, because a process reads the variable only once.
std::string watched(const std::string& path, const std::function<std::string()>& work) {
  return in_child([&] {
    ::setenv(kMarksVariable, path.c_str(), 1);
    return work();
  });
}

TEST(MarkText, StaysOnOneLine) {
  EXPECT_EQ(clean("epoch 2, größer"), "epoch 2, größer");
  EXPECT_EQ(clean(std::string_view("a\nb\r\tc\x1b[0m\x7f\0d", 13)), "a b  c [0m  d");
  EXPECT_EQ(clean(""), "");
}

TEST(MarkText, IsCutBetweenCharacters) {
  const std::string filler(198, 'x');
  EXPECT_EQ(clean(filler + "ab"), filler + "ab");
  EXPECT_EQ(clean(filler + "abc"), filler + "ab");
  EXPECT_EQ(clean(filler + "aé"), filler + "a");
  EXPECT_EQ(clean(filler + "é"), filler + "é");
  EXPECT_EQ(clean(filler + "€"), filler);
  EXPECT_EQ(clean(filler.substr(1) + "😀z"), filler.substr(1));
  EXPECT_EQ(clean(std::string(300, '\x80')).size(), 200u);  // not UTF-8: cut anywhere
}

TEST(Marks, LinesAreParsed) {
  const auto mark = parse_mark("123456789 42 epoch 2  of 3");
  ASSERT_TRUE(mark);
  EXPECT_EQ(mark->nanoseconds, 123456789u);
  EXPECT_EQ(mark->pid, 42);
  EXPECT_EQ(mark->text, "epoch 2  of 3");
  EXPECT_EQ(parse_mark("1 2 ")->text, "");
}

TEST(Marks, OtherLinesAreRefused) {
  for (const char* line : {"", " ", "epoch", "12", "12 ", "12 34", "-1 34 x", "12 0 x", "12 -3 x",
                           "99999999999999999999999 3 x", "9223372036854775808 3 x",
                           "12 99999999999 x", "1.5 3 x", "12  3 x"}) {
    EXPECT_FALSE(parse_mark(line)) << line;
  }
}

TEST(Marks, ArriveWithTimeAndProcess) {
  MarkFile file;
  EXPECT_TRUE(file.read_new().empty());
  const std::uint64_t before = now();
  const std::string pid = watched(file.path(), [] {
    mark("load\ning");
    mark("epoch 1");
    return std::to_string(::getpid());
  });
  const auto marks = file.read_new();
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(marks[0].text, "load ing");
  EXPECT_EQ(marks[1].text, "epoch 1");
  EXPECT_EQ(std::to_string(marks[0].pid), pid);
  EXPECT_GE(marks[0].nanoseconds, before);
  EXPECT_GE(marks[1].nanoseconds, marks[0].nanoseconds);
  EXPECT_LE(marks[1].nanoseconds, now());
  EXPECT_TRUE(file.read_new().empty());
  EXPECT_EQ(file.dropped(), 0u);
}

TEST(Marks, OfThreadsAndChildrenAllArrive) {
  MarkFile file;
  watched(file.path(), [] {
    mark("first");
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([] {
        for (int k = 0; k < 50; ++k) mark(std::string(150, 'x'));
      });
    }
    const std::string child = in_child([] {
      mark("from a child");
      return std::string();
    });
    for (std::thread& thread : threads) thread.join();
    return child;
  });
  const auto marks = file.read_new();
  ASSERT_EQ(marks.size(), 202u);
  int whole = 0, children = 0;
  for (const Mark& one : marks) {
    whole += one.text == std::string(150, 'x');
    children += one.text == "from a child" && one.pid != marks[0].pid;
  }
  EXPECT_EQ(whole, 200);
  EXPECT_EQ(children, 1);
}

TEST(Marks, DoNothingWithoutTheVariable) {
  const std::string said = in_child([] {
    ::unsetenv(kMarksVariable);
    errno = 77;
    mark("unseen");
    return std::to_string(errno);
  });
  EXPECT_EQ(said, "77");
}

// Whatever the variable contains, the program goes on, and only a regular file is written to.
TEST(Marks, AreOnlyWrittenToRegularFiles) {
  const TempFolder folder;
  const std::string pipe = folder.path("pipe"), link = folder.path("link");
  const std::string target = folder.write("target", "kept");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(::symlink(target.c_str(), link.c_str()), 0);
  const Fd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  for (const std::string& path : {pipe, link, folder.root(), folder.path("none"), std::string()}) {
    const std::string said = watched(path, [] {
      errno = 77;
      mark("lost");
      return std::to_string(errno);
    });
    EXPECT_EQ(said, "77") << path;
  }
  char byte;
  EXPECT_LE(::read(reader.get(), &byte, 1), 0);
  EXPECT_EQ(std::filesystem::file_size(target), 4u);
  EXPECT_FALSE(std::filesystem::exists(folder.path("none")));
}

TEST(Marks, AreDroppedAtTheFileSizeLimitWithoutASignal) {
  MarkFile file;
  const std::string said = watched(file.path(), [] {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_FSIZE, &none);
    mark("too much");
    return std::string("alive");
  });
  EXPECT_EQ(said, "alive");
  EXPECT_TRUE(file.read_new().empty());
}

TEST(Marks, FileDoesNotGrowWithoutEnd) {
  MarkFile file;
  ASSERT_EQ(::truncate(file.path().c_str(), static_cast<off_t>(kMostMarkFile)), 0);
  watched(file.path(), [] {
    mark("one more");
    return std::string();
  });
  EXPECT_EQ(std::filesystem::file_size(file.path()), kMostMarkFile);
}

TEST(MarkFile, IsPrivateAndIsDeleted) {
  std::string path;
  {
    const MarkFile file;
    path = file.path();
    EXPECT_TRUE(std::filesystem::path(path).is_absolute());
    struct stat status;
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(MarkFile, WaitsForTheEndOfALine) {
  MarkFile file;
  append(file.path(), "1 2 on");
  EXPECT_TRUE(file.read_new().empty());
  append(file.path(), "e\n3 4 two\n5 ");
  const auto marks = file.read_new();
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(marks[0].text, "one");
  EXPECT_EQ(marks[1].text, "two");
  append(file.path(), "6 three\n");
  EXPECT_EQ(file.read_new().at(0).text, "three");
}

TEST(MarkFile, SkipsGarbage) {
  MarkFile file;
  append(file.path(), "nonsense\n\n1 2 good\n" + std::string(100'000, 'z') + "\n" +
                          std::string("\0\0\n", 3) + "3 4 also\n");
  const auto marks = file.read_new();
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(marks[0].text, "good");
  EXPECT_EQ(marks[1].text, "also");
}

TEST(MarkFile, KeepsTheFirstThousandAndCountsTheRest) {
  MarkFile file;
  std::string lines;
  for (int i = 0; i < 900; ++i) lines += std::to_string(i) + " 1 x\n";
  append(file.path(), lines);
  EXPECT_EQ(file.read_new().size(), 900u);
  append(file.path(), lines + "garbage\n");
  const auto marks = file.read_new();
  EXPECT_EQ(marks.size(), 100u);
  EXPECT_EQ(marks.back().nanoseconds, 99u);
  EXPECT_EQ(file.dropped(), 800u);
}

}  // namespace
}  // namespace evenkeel
