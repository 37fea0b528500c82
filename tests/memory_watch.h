// For tests: measures from outside what a piece of work does to memory. The work runs in a new
// process of this program, so that nothing else is measured.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "meter/file_cache.h"
#include "meter/process.h"

namespace evenkeel {

// How far each figure rose above its value before the work, in bytes.
struct MemoryGrowth {
  std::uint64_t anon = 0, rss = 0, cache = 0, memory = 0;  // memory: anon and cache together
  std::uint64_t page_tables = 0;
  std::uint64_t cached_before = 0, cached_after = 0;
  std::string said;  // what the work returned; "died: ..." if its process failed

  std::string describe() const {
    const auto kib = [](std::uint64_t bytes) { return std::to_string(bytes / 1024) + " KiB"; };
    return "anon +" + kib(anon) + ", cache +" + kib(cache) + ", both +" + kib(memory) + ", RSS +" +
           kib(rss) + ", page tables +" + kib(page_tables) + ", said " + said;
  }
};

// The side of the new process: it reports that it is ready, waits, works, reports the result and
// waits again. The environment says which work to do; see main in memory_budget_test.cc.
class WorkerSide {
 public:
  static bool is_one() { return std::getenv("EVENKEEL_TEST_WORK") != nullptr; }
  static std::string wish() { return std::getenv("EVENKEEL_TEST_WORK"); }
  static void ready() { exchange("ready\n"); }
  static void done(const std::string& said) { exchange(said + "\n"); }

 private:
  static void exchange(const std::string& text) {
    char answer;
    if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) ::_exit(3);
    if (::read(STDIN_FILENO, &answer, 1) != 1) ::_exit(3);
  }
};

class MemoryWatch {
 public:
  // `before_start` runs in the new process before it becomes the worker.
  MemoryWatch(const std::string& wish, const std::string& data_file,
              const std::function<void()>& before_start = nullptr)
      : data_(::open(data_file.c_str(), O_RDONLY | O_CLOEXEC)) {
    int to[2], from[2];
    if (!data_ || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, to) != 0 ||
        ::pipe2(from, O_CLOEXEC) != 0) {
      throw std::runtime_error("watch " + data_file);
    }
    to_ = Fd(to[1]);
    from_ = Fd(from[0]);
    const Fd worker_in(to[0]), worker_out(from[1]);
    worker_ = ::fork();
    if (worker_ == 0) {
      ::dup2(worker_in.get(), STDIN_FILENO);
      ::dup2(worker_out.get(), STDOUT_FILENO);
      ::setenv("EVENKEEL_TEST_WORK", wish.c_str(), 1);
      if (before_start) before_start();
      ::execl("/proc/self/exe", "evenkeel_test_worker", nullptr);
      ::_exit(4);
    }
  }
  ~MemoryWatch() { finish(); }
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  MemoryGrowth run() {
    MemoryGrowth growth;
    if (line(nullptr) != "ready") return ended(growth);
    const ProcessMeter meter(worker_);
    const auto before = meter.sample().value_or(ProcessMemory{});
    growth.cached_before = growth.cached_after = cached();
    go_on();
    growth.said = line([&] {
      const auto now = meter.sample();
      growth.cached_after = cached();
      const auto above = [](std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; };
      growth.cache = std::max(growth.cache, above(growth.cached_after, growth.cached_before));
      if (!now) return;
      growth.anon = std::max(growth.anon, above(now->anon, before.anon));
      growth.rss = std::max(
          {growth.rss, above(now->rss(), before.rss()), above(now->peak_rss, before.peak_rss)});
      growth.memory = std::max(growth.memory, above(now->anon + growth.cached_after,
                                                    before.anon + growth.cached_before));
      growth.page_tables =
          std::max(growth.page_tables, above(now->page_tables, before.page_tables));
    });
    return ended(growth);
  }

 private:
  std::uint64_t cached() const {
    const auto told = file_cache_of(data_.get());
    if (!told) throw std::runtime_error("the kernel does not tell what is cached");
    return told->cached;
  }
  // Returns the worker's next line. Calls `look` every half millisecond until it arrives.
  std::string line(const std::function<void()>& look) {
    std::string text;
    while (true) {
      if (look) look();
      pollfd wait{from_.get(), POLLIN, 0};
      const timespec half{0, 500'000};
      if (::ppoll(&wait, 1, look ? &half : nullptr, nullptr) <= 0) continue;
      char c;
      if (::read(from_.get(), &c, 1) != 1) return "";
      if (c == '\n') {
        if (look) look();
        return text;
      }
      text += c;
    }
  }
  bool go_on() const { return ::send(to_.get(), "g", 1, MSG_NOSIGNAL) == 1; }
  MemoryGrowth ended(MemoryGrowth growth) {
    finish();
    if (WIFSIGNALED(status_)) {
      growth.said = "died: signal " + std::to_string(WTERMSIG(status_));
    } else if (WEXITSTATUS(status_) != 0 || growth.said.empty()) {
      growth.said = "died: exit " + std::to_string(WEXITSTATUS(status_));
    }
    return growth;
  }
  void finish() {
    if (worker_ <= 0) return;
    go_on();
    ::waitpid(worker_, &status_, 0);
    worker_ = 0;
  }

  const Fd data_;
  Fd to_, from_;
  pid_t worker_ = 0;
  int status_ = 0;
};

}  // namespace evenkeel
