// labels: threads
#include "metrics/page.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>
#include <vector>

#include "evenkeel/array.h"
#include "metrics/folder.h"
#include "tests/counting_file.h"
#include "tests/forked.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

PageData whole_page() {
  PageData data;
  data.magic = kPageMagic;
  data.size = sizeof(data);
  data.sequence = 8;
  data.limit = 1_MiB;
  data.check = page_check(data);
  return data;
}

std::string bytes_of(const PageData& data) {
  return {reinterpret_cast<const char*>(&data), sizeof(data)};
}

// $XDG_RUNTIME_DIR is a folder of the test. Children do the work and create a page when they first
// read; this process may have a page elsewhere.
class PageTest : public testing::Test {
 protected:
  PageTest() { ::setenv("XDG_RUNTIME_DIR", folder_.root().c_str(), 1); }
  ~PageTest() override {
    if (before_.empty()) {
      ::unsetenv("XDG_RUNTIME_DIR");
    } else {
      ::setenv("XDG_RUNTIME_DIR", before_.c_str(), 1);
    }
  }
  std::string pages() const { return folder_.path("evenkeel-top"); }
  std::size_t files() const {
    std::error_code none;
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(pages(), none)) {
      count += entry.is_regular_file() ? 1 : 0;
    }
    return count;
  }
  // Only pages in the folder of the test: other programs may have pages on this machine.
  std::vector<SeenPage> seen() const {
    std::vector<SeenPage> seen = read_pages();
    std::erase_if(seen, [&](const SeenPage& one) { return !one.file.starts_with(pages()); });
    return seen;
  }
  // The first file in the folder.
  std::string page() const { return std::filesystem::directory_iterator(pages())->path(); }
  static Array open(const std::string& file) {
    return Array::open(file, {.budget = 4_MiB, .dtype = DType::of<std::uint8_t>()});
  }
  std::string numbers() const { return counting_file(folder_, "numbers", 1 << 17); }

  const TempFolder folder_;
  const std::string before_ = [] {
    const char* const set = std::getenv("XDG_RUNTIME_DIR");
    return std::string(set ? set : "");
  }();
};

// A child that has an array open until end() is called.
class Worker {
 public:
  explicit Worker(const std::string& file) {
    int ready[2], done[2];
    if (::pipe(ready) != 0 || ::pipe(done) != 0) throw std::runtime_error("pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(done[1]);
      const Array array = Array::open(file, {.budget = 4_MiB, .dtype = DType::of<std::uint8_t>()});
      std::vector<std::byte> out(4096);
      array.read(0, out.size(), out);
      array.read(0, 1, out);
      char word = 'r';
      static_cast<void>(!::write(ready[1], &word, 1));
      static_cast<void>(!::read(done[0], &word, 1));
      ::_exit(0);
    }
    ::close(ready[1]);
    ::close(done[0]);
    char word = 0;
    if (::read(ready[0], &word, 1) != 1) throw std::runtime_error("the child died");
    ::close(ready[0]);
    done_ = done[1];
  }
  ~Worker() { end(SIGKILL); }
  void end(int signal) {
    if (pid_ == 0) return;
    ::kill(pid_, signal);
    ::close(done_);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  int done_ = -1;
};

TEST_F(PageTest, AProcessIsSeenWhileItLives) {
  const std::string file = numbers();
  Worker first(file), second(file);
  const std::vector<SeenPage> both = seen();
  ASSERT_EQ(both.size(), 2u);
  for (const SeenPage& page : both) {
    EXPECT_TRUE(page.pid == first.pid() || page.pid == second.pid());
    EXPECT_EQ(page.data.pid, static_cast<std::uint64_t>(page.pid));
    EXPECT_EQ(page.user, ::geteuid());
    EXPECT_EQ(page.data.arrays, 1u);
    EXPECT_EQ(page.data.limit, 4_MiB);
    EXPECT_GT(page.data.in_use, 0u);
  }
  first.end(SIGKILL);
  ASSERT_EQ(seen().size(), 1u);
  EXPECT_EQ(seen().front().pid, second.pid());
  EXPECT_EQ(files(), 1u);  // the page of the killed process was removed
}

TEST_F(PageTest, TheNextProcessRemovesThePageOfAKilledOne) {
  const std::string file = numbers();
  Worker(file).end(SIGKILL);
  ASSERT_EQ(files(), 1u);
  const Worker next(file);
  EXPECT_EQ(files(), 1u);
  ASSERT_EQ(seen().size(), 1u);
  EXPECT_EQ(seen().front().pid, next.pid());
}

// The child does not write to the page of its parent.
TEST_F(PageTest, AChildOfForkHasItsOwnPage) {
  const std::string file = numbers();
  EXPECT_EQ(in_child([&]() -> std::string {
              const Array array =
                  Array::open(file, {.budget = 4_MiB, .dtype = DType::of<std::uint8_t>()});
              std::vector<std::byte> out(64);
              if (files() != 1) return "no page: " + std::to_string(files());
              return in_child([&]() -> std::string {
                if (files() != 1) return "a page before it reads";
                array.read(0, out.size(), out);
                const auto others = seen();
                if (files() != 2 || others.size() != 1) return "wrong pages";
                return others.front().pid == ::getppid() ? "two" : "wrong process";
              });
            }),
            "two");
}

TEST_F(PageTest, IsNotCreatedWhenTurnedOff) {
  const std::string file = numbers();
  EXPECT_EQ(in_child([&]() -> std::string {
              ::setenv("EVENKEEL_TOP", "off", 1);
              const Array array =
                  Array::open(file, {.budget = 4_MiB, .dtype = DType::of<std::uint8_t>()});
              return std::to_string(files());
            }),
            "0");
}

// logind removes the runtime folder at logout, even if the process goes on.
TEST_F(PageTest, APageThatWasRemovedIsCreatedAgain) {
  const std::string file = numbers();
  EXPECT_EQ(in_child([&]() -> std::string {
              const Array array = open(file);
              const std::string before = page();
              std::filesystem::remove_all(pages());
              open(file);  // notices that the page is gone
              open(file);
              return files() == 1 && page() != before ? "another" : "none";
            }),
            "another");
}

// A program may close descriptors that it did not open, and then reuse their numbers.
TEST_F(PageTest, AFileOfTheProgramIsNotWrittenTo) {
  const std::string file = numbers(), other = folder_.write("other", "the program's own");
  EXPECT_EQ(in_child([&]() -> std::string {
              const Array array = open(file);
              int fd = -1;
              for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
                std::error_code none;
                if (std::filesystem::equivalent(entry.path(), page(), none))
                  fd = std::stoi(entry.path().filename());
              }
              if (fd < 0) return "its page is not open";
              const int own = ::open(other.c_str(), O_RDWR);
              ::dup2(own, fd);
              open(file);
              open(file);
              if (std::filesystem::file_size(other) != 17) return "written to";
              in_child([] { return std::string(); });  // a child must not close it either
              return ::fcntl(fd, F_GETFD) >= 0 && files() == 1 ? "unharmed" : "closed";
            }),
            "unharmed");
}

// Destroyed after the page was removed, because it is constructed before main.
std::vector<Array> closed_at_exit;

TEST_F(PageTest, GlobalArraysMayBeClosedAfterThePageWasRemoved) {
  const std::string file = numbers();
  std::fflush(nullptr);  // else exit prints again what the parent has not printed yet
  const pid_t child = ::fork();
  if (child == 0) {
    for (int i = 0; i < 3; ++i) closed_at_exit.push_back(open(file));
    std::exit(files() == 1 ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(files(), 0u);  // and no other page was made
}

// Beyond `ulimit -f`, writing would raise a signal. A page that cannot be written is not tried
// again.
TEST_F(PageTest, IsNotWrittenBeyondTheFileSizeLimit) {
  const std::string file = numbers();
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto limited = [&](rlim_t bytes) {
    const rlimit limit{bytes, before.rlim_max};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) throw std::runtime_error("setrlimit");
  };
  EXPECT_EQ(in_child([&]() -> std::string {
              limited(100);
              open(file);
              return std::to_string(files());
            }),
            "0");
  EXPECT_EQ(in_child([&]() -> std::string {
              const Array array = open(file);
              const std::string dropped = page();
              limited(100);
              open(file);  // fails
              limited(before.rlim_cur);
              std::filesystem::remove(dropped);
              open(file);
              open(file);
              return std::to_string(files());
            }),
            "0");
}

TEST_F(PageTest, AFolderWithTwoPathsIsReadOnce) {
  const Worker worker(numbers());
  const PagePlace place{folder_.root(), "evenkeel-top", ::geteuid()};
  const PagePlace again{folder_.root() + "/.", "evenkeel-top", ::geteuid()};
  EXPECT_EQ(read_pages({place, again}).size(), 1u);
  EXPECT_EQ(read_pages({again}).size(), 1u);
}

// With `sudo -E`, root has the $XDG_RUNTIME_DIR of another user.
TEST_F(PageTest, TheRuntimeFolderOfAnotherUserIsNotUsed) {
  const uid_t other = ::geteuid() + 1;
  const PagePlace place{folder_.root(), "evenkeel-top", other};
  EXPECT_FALSE(open_page_folder(place, true));
  EXPECT_FALSE(std::filesystem::exists(pages()));
  if (::geteuid() != 0) return;  // only root can change the owner
  const std::string root = folder_.root();
  ASSERT_EQ(::chown(root.c_str(), other, static_cast<gid_t>(-1)), 0);
  EXPECT_FALSE(open_page_folder({root, "evenkeel-top", 0}, true));
  EXPECT_FALSE(std::filesystem::exists(pages()));
}

TEST_F(PageTest, AFolderThatOthersCouldWriteToIsNotUsed) {
  const uid_t user = ::geteuid();
  const PagePlace place{folder_.root(), "evenkeel-top", user};
  std::filesystem::create_directory(pages());
  std::filesystem::permissions(pages(), std::filesystem::perms(0755));
  EXPECT_FALSE(open_page_folder(place, true));
  std::filesystem::permissions(pages(), std::filesystem::perms(0700));
  EXPECT_TRUE(open_page_folder(place, true));
  EXPECT_FALSE(open_page_folder({folder_.root(), "evenkeel-top", user + 1}, false));
  // A link to a folder that would be accepted.
  std::filesystem::create_directory_symlink(pages(), folder_.path("link"));
  EXPECT_FALSE(open_page_folder({folder_.root(), "link", user}, true));
}

TEST_F(PageTest, OtherFilesInTheFolderAreNotRead) {
  const Worker worker(numbers());
  ASSERT_EQ(seen().size(), 1u);
  const std::string page = seen().front().file;
  std::filesystem::create_symlink(page, pages() + "/link");
  std::filesystem::create_directory(pages() + "/folder");
  ASSERT_EQ(::mkfifo((pages() + "/fifo").c_str(), 0600), 0);
  // A whole page that no process has locked is removed.
  folder_.write("evenkeel-top/1-2.3", bytes_of(whole_page()));
  EXPECT_EQ(seen().size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(pages() + "/1-2.3"));
  EXPECT_TRUE(std::filesystem::exists(pages() + "/link"));
  // A page that is being created is left alone, and so are files with other names.
  const std::vector<std::string> others = {".1-2.3",  "libevenkeel_guard-0123456789abcdef.so",
                                           "1",       "1-2",
                                           "1-2.",    "1-2.3.4",
                                           "-1-2.3",  "1-2.3x",
                                           "1--2.3",  "..1-2.3",
                                           "1-2.3-4", "1.2-3"};
  for (const std::string& name : others) folder_.write("evenkeel-top/" + name, "");
  EXPECT_EQ(seen().size(), 1u);
  for (const std::string& name : others) {
    EXPECT_TRUE(std::filesystem::exists(pages() + "/" + name)) << name;
  }
  // A locked file with invalid contents is skipped.
  for (const std::string& text : {std::string(), std::string("x"), std::string(1 << 20, 'x')}) {
    folder_.write("evenkeel-top/" + std::filesystem::path(page).filename().string(), text);
    EXPECT_TRUE(seen().empty());
  }
}

TEST(PageDataTest, OnlyWholePagesAreAccepted) {
  const PageData good = whole_page();
  const std::string bytes = bytes_of(good);
  ASSERT_TRUE(parse_page(bytes.data(), bytes.size()));
  EXPECT_EQ(parse_page(bytes.data(), bytes.size())->limit, 1_MiB);
  EXPECT_FALSE(parse_page(bytes.data(), bytes.size() - 1));
  EXPECT_FALSE(parse_page((bytes + "x").data(), bytes.size() + 1));
  for (std::size_t i = 0; i < bytes.size(); ++i) {  // torn, at any byte
    std::string torn = bytes;
    torn[i] = static_cast<char>(torn[i] + 1);
    EXPECT_FALSE(parse_page(torn.data(), torn.size())) << i;
  }
}

// A page with random numbers is harmless: its name is zero-terminated.
TEST(PageDataTest, AForgedPageIsHarmless) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 1000; ++i) {
    std::array<std::uint64_t, sizeof(PageData) / 8> words;
    for (std::uint64_t& word : words) word = random();
    auto forged = std::bit_cast<PageData>(words);
    forged.magic = kPageMagic;
    forged.size = sizeof(forged);
    forged.check = page_check(forged);
    const auto parsed = parse_page(&forged, sizeof(forged));
    ASSERT_TRUE(parsed);
    EXPECT_LT(std::strlen(parsed->name), sizeof(forged.name));
  }
}

}  // namespace
}  // namespace evenkeel
