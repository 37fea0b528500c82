#include "cli/child_command.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/text_file.h"
#include "tests/forked.h"
#include "tests/temp_folder.h"

namespace evenkeel::cli {
namespace {

using std::chrono::milliseconds;

// Runs in a child process, because the signals stay blocked.
std::string ending_of(const std::vector<std::string>& words,
                      const std::function<void(pid_t)>& tick = nullptr) {
  return in_child([&]() -> std::string {
    try {
      ChildCommand child(words, {});
      const pid_t pid = child.pid();
      child.go();
      const Ending ending = child.wait(milliseconds(5), [&](bool) {
        if (tick) tick(pid);
      });
      return std::to_string(ending.exit_code) + ", " + ending.words();
    } catch (const CannotStart& cannot) {
      return "cannot start, " + std::to_string(cannot.exit_code);
    }
  });
}

TEST(Ending, IsInWords) {
  EXPECT_EQ((Ending{3, 0, 0}.words()), "exit code 3");
  EXPECT_EQ((Ending{137, 9, 0}.words()), "killed by signal 9 (SIGKILL)");
  EXPECT_EQ((Ending{170, 42, 0}.words()), "killed by signal 42");
}

TEST(ChildCommand, EndsAsTheCommandDid) {
  EXPECT_EQ(ending_of({"true"}), "0, exit code 0");
  EXPECT_EQ(ending_of({"sh", "-c", "exit 200"}), "200, exit code 200");
  EXPECT_EQ(ending_of({"sh", "-c", "kill -9 $$"}), "137, killed by signal 9 (SIGKILL)");
  EXPECT_EQ(ending_of({"sh", "-c", "kill -TERM $$"}), "143, killed by signal 15 (SIGTERM)");
}

TEST(ChildCommand, SaysWhyItCannotStart) {
  const TempFolder folder;
  EXPECT_EQ(ending_of({folder.path("missing")}), "cannot start, 127");
  EXPECT_EQ(ending_of({"no-such-command-anywhere"}), "cannot start, 127");
  EXPECT_EQ(ending_of({""}), "cannot start, 127");
  EXPECT_EQ(ending_of({folder.write("plain", "text")}), "cannot start, 126");
  EXPECT_EQ(ending_of({folder.root()}), "cannot start, 126");
}

TEST(ChildCommand, IsNothingUntilItIsLetGo) {
  const TempFolder folder;
  const std::string trace = folder.path("ran");
  in_child([&] {
    const ChildCommand child({"touch", trace}, {});
    std::this_thread::sleep_for(milliseconds(50));
    return std::string();
  });
  EXPECT_EQ(::access(trace.c_str(), F_OK), -1);
  in_child([&] {
    ChildCommand child({"touch", trace}, {});
    child.go();
    child.wait(milliseconds(5), [](bool) {});
    return std::string();
  });
  EXPECT_EQ(::access(trace.c_str(), F_OK), 0);
}

TEST(ChildCommand, AddsToTheEnvironment) {
  const TempFolder folder;
  in_child([&] {
    ChildCommand child({"sh", "-c", "printf %s \"$A:$B\" > " + folder.path("out")},
                       {"A=x=y z", "B="});
    child.go();
    child.wait(milliseconds(5), [](bool) {});
    return std::string();
  });
  EXPECT_EQ(read_text_file(folder.path("out")), "x=y z:");
}

TEST(ChildCommand, TicksAtOnceAndOnceMoreAtTheEnd) {
  // The interval is far longer than the command, but wait() returns when the command ends.
  EXPECT_EQ(in_child([] {
              ChildCommand child({"sleep", "0.05"}, {});
              child.go();
              std::string ticks;
              child.wait(std::chrono::hours(1), [&](bool ended) { ticks += ended ? "e" : "t"; });
              return ticks;
            }),
            "te");
}

TEST(ChildCommand, TheLastTickStillSeesTheProcess) {
  EXPECT_EQ(in_child([] {
              ChildCommand child({"sleep", "0.05"}, {});
              const std::string stat = "/proc/" + std::to_string(child.pid()) + "/stat";
              child.go();
              bool there = false;
              child.wait(milliseconds(5), [&](bool) { there = ::access(stat.c_str(), F_OK) == 0; });
              return std::string(there ? "there" : "gone");
            }),
            "there");
}

TEST(ChildCommand, PassesOnWhatIsSentToIt) {
  const TempFolder folder;
  const std::string ready = folder.path("ready");
  const std::string script = "trap 'exit 21' USR1; : > " + ready + "; while :; do sleep 0.01; done";
  bool sent = false;
  const auto tick = [&](pid_t) {
    if (!sent && ::access(ready.c_str(), F_OK) == 0) {
      sent = true;
      ::kill(::getpid(), SIGUSR1);
    }
  };
  EXPECT_EQ(ending_of({"sh", "-c", script}, tick), "21, exit code 21");
}

TEST(ChildCommand, SeesTheEndWhereChildrenAreIgnored) {
  EXPECT_EQ(in_child([] {
              std::signal(SIGCHLD, SIG_IGN);
              ChildCommand child({"sh", "-c", "exit 5"}, {});
              child.go();
              return child.wait(milliseconds(5), [](bool) {}).words();
            }),
            "exit code 5");
}

TEST(SignalWatch, SeesWhatComes) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EQ(in_child([&] {
                std::signal(signal, SIG_DFL);  // a shell's background jobs ignore SIGINT
                SignalWatch signals;
                const bool before = signals.came(milliseconds(0));
                ::raise(signal);
                const bool after = signals.came(std::chrono::hours(1));
                return std::to_string(before) + std::to_string(after);
              }),
              "01")
        << signal;
  }
}

TEST(SignalWatch, WhatIsIgnoredStaysIgnored) {
  EXPECT_EQ(in_child([] {
              std::signal(SIGHUP, SIG_IGN);  // nohup
              SignalWatch signals;
              ::raise(SIGHUP);
              return std::to_string(signals.came(milliseconds(20)));
            }),
            "0");
}

}  // namespace
}  // namespace evenkeel::cli
