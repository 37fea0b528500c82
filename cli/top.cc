// evenkeel top: shows the processes that use Evenkeel.
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <pwd.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text_file.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/top_view.h"
#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

using TopClock = std::chrono::steady_clock;

constexpr char kTopFooter[] = R"(
BUDGET, IN USE  all budgets of the process together
HITS            share of lookups that were found in the cache
MB/S            bytes read from all sources, including caches and mappings
WAIT            share of the time that the program waited for batches of a loader, or for its reads if it has
                no loader; more than 100% if several threads wait

A process is listed once it has opened an array, unless EVENKEEL_TOP=off is set in its environment.
Users see their own processes. Root sees those of all users whose runtime folder is /run/user/UID or /dev/shm.
q quits. If stdout is not a terminal, it prints once, as with --once.

Examples:
  evenkeel top
  evenkeel top --once
  evenkeel top --json --interval 5s | jq '.processes[].bytes_per_second')";

struct TopWords {
  bool once = false, json = false;
  std::chrono::nanoseconds interval = std::chrono::seconds(1);
};

struct Reading {
  TopClock::time_point when;
  std::vector<SeenPage> pages;
};

Reading read_now() { return {TopClock::now(), read_pages()}; }

std::string user_name(uid_t user) {
  const passwd* const entry = ::getpwuid(user);
  return entry ? entry->pw_name : std::to_string(user);
}

// The command line of the process if it has a PID in this namespace; otherwise the name in its
// page.
std::string command_of(const SeenPage& page) {
  if (page.pid > 0) {
    std::string words =
        read_text_file("/proc/" + std::to_string(page.pid) + "/cmdline").value_or("");
    while (!words.empty() && words.back() == '\0') words.pop_back();
    for (char& c : words) c = c == '\0' ? ' ' : c;
    if (!words.empty()) return words;
    return page.data.name;
  }
  return fmt::format("{} ({} in its own namespace)", page.data.name, page.data.pid);
}

std::vector<TopRow> rows_of(const Reading& before, const Reading& after) {
  const std::chrono::duration<double> passed = after.when - before.when;
  std::vector<TopRow> rows = rows_between(before.pages, after.pages, passed.count());
  for (TopRow& row : rows) {
    row.user = user_name(row.page.user);
    row.command = command_of(row.page);
  }
  return rows;
}

template <class Number>
nlohmann::ordered_json or_null(const std::optional<Number>& number) {
  return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json();
}

void print_rows_as_json(const std::vector<TopRow>& rows, double seconds) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  std::uint64_t budget = 0, in_use = 0;
  double rate = 0;
  for (const TopRow& row : rows) {
    const PageData& data = row.page.data;
    budget += data.limit;
    in_use += data.in_use;
    rate += row.bytes_per_second.value_or(0);
    list.push_back({
        {"pid", row.page.pid > 0 ? nlohmann::ordered_json(row.page.pid) : nlohmann::ordered_json()},
        {"own_pid", data.pid},
        {"user", row.user},
        {"command", row.command},
        {"arrays", data.arrays},
        {"loaders", data.loaders},
        {"budgets", data.budgets},
        {"budget_bytes", data.limit},
        {"in_use_bytes", data.in_use},
        {"cached_bytes", data.cached},
        {"peak_bytes", data.peak},
        {"bytes_per_second", or_null(row.bytes_per_second)},
        {"hit_share", or_null(row.hit_share)},
        {"wait_share", or_null(row.wait_share)},
        {"waits_for", waits_for_batches(data) ? "batches" : "reads"},
        {"since_start",
         {{"bytes_from_disk", data.bytes_from_disk},
          {"bytes_from_page_cache", data.bytes_from_page_cache},
          {"bytes_from_mapping", data.bytes_from_mapping},
          {"bytes_from_cache", data.bytes_from_cache},
          {"bytes_from_network", data.bytes_from_network},
          {"bytes_from_disk_cache", data.bytes_from_disk_cache},
          {"cache_hits", data.cache_hits},
          {"cache_misses", data.cache_misses},
          {"requests", data.requests},
          {"wait_ns", data.wait_ns},
          {"batches", data.batches},
          {"batch_wait_ns", data.batch_wait_ns}}},
    });
  }
  print_json({{"seconds", seconds},
              {"processes", list},
              {"totals",
               {{"processes", rows.size()},
                {"budget_bytes", budget},
                {"in_use_bytes", in_use},
                {"bytes_per_second", rate}}}});
}

// Waits for a key, a signal or the timeout.
bool wait_for_key(TopClock::time_point until, char& key) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - TopClock::now());
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  const int timeout = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
  if (::poll(&input, 1, timeout) <= 0 || (input.revents & POLLIN) == 0) return false;
  return ::read(STDIN_FILENO, &key, 1) == 1;
}

void put_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(STDOUT_FILENO, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) throw Error::system("top", errno, "cannot write to the terminal");
    text.remove_prefix(static_cast<std::size_t>(done));
  }
}

// The alternate screen, without echo and cursor. The destructor restores the terminal.
class Screen {
 public:
  Screen() {
    keys_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (keys_) {
      termios quiet = before_;
      quiet.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      quiet.c_cc[VSUSP] = _POSIX_VDISABLE;  // ^Z would leave the terminal like this
      quiet.c_cc[VMIN] = 1;
      quiet.c_cc[VTIME] = 0;
      ::tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
    }
    struct sigaction action = {};
    action.sa_handler = [](int) {};  // only ends the wait, so that the new size is used
    ::sigaction(SIGWINCH, &action, &resized_before_);
    put_all("\033[?1049h\033[?25l");
  }
  ~Screen() {
    constexpr std::string_view kBack = "\033[?25h\033[?1049l";
    static_cast<void>(!::write(STDOUT_FILENO, kBack.data(), kBack.size()));
    ::sigaction(SIGWINCH, &resized_before_, nullptr);
    if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  bool has_keys() const { return keys_; }

  // Overwrites the old text in one write, without clearing it first, so that nothing flickers.
  static void show(const std::vector<TopRow>& rows) {
    winsize size = {};
    ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    const std::size_t columns = size.ws_col > 0 ? size.ws_col : 80;
    const std::size_t lines = size.ws_row > 0 ? size.ws_row : 24;
    std::string text = "\033[H";
    std::size_t number = 0;
    for (const std::string& line : top_lines(rows, columns, lines)) {
      if (number == lines) break;
      if (number > 0) text += "\r\n";
      text += number == 2 ? "\033[7m" + line + "\033[0m\033[K" : line + "\033[K";
      ++number;
    }
    put_all(text + "\033[J");
  }

 private:
  termios before_ = {};
  bool keys_ = false;
  struct sigaction resized_before_ = {};
};

void watch(const TopWords& words) {
  const InterruptGuard interrupts;
  const Screen screen;
  Reading before = read_now();
  std::vector<TopRow> rows = rows_of(before, before);
  for (;;) {
    const auto next = before.when + words.interval;
    while (TopClock::now() < next) {
      check_interrupt();
      Screen::show(rows);
      char key = 0;
      if (screen.has_keys() ? wait_for_key(next, key) : ::poll(nullptr, 0, 100) > 0) {
        if (key == 'q' || key == 'Q') return;
      }
    }
    Reading after = read_now();
    rows = rows_of(before, after);
    before = std::move(after);
  }
}

void print_once(const TopWords& words) {
  const InterruptGuard interrupts;
  const Reading before = read_now();
  const auto until = before.when + words.interval;
  while (TopClock::now() < until) {
    check_interrupt();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - TopClock::now());
    ::poll(nullptr, 0, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
  }
  const Reading after = read_now();
  const std::chrono::duration<double> passed = after.when - before.when;
  const std::vector<TopRow> rows = rows_of(before, after);
  if (words.json) return print_rows_as_json(rows, passed.count());
  std::string text;
  for (const std::string& line : top_lines(rows, SIZE_MAX, 0)) text += line + "\n";
  say(stdout, text);
}

}  // namespace

void add_top(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "top", "Show processes that use Evenkeel: budget, memory in use, cache hits, MB/s, waits");
  auto words = std::make_shared<TopWords>();
  add_parsed(
      *command, "--interval", "TIME",
      [words](const std::string& text) {
        words->interval = parse_interval(text);
        if (words->interval < std::chrono::milliseconds(100) ||
            words->interval > std::chrono::hours(1)) {
          throw Error(ErrorKind::kInvalid, "interval", text + " is not between 100ms and 3600s");
        }
      },
      "Time over which rates are measured, and between two updates; default 1s");
  command->add_flag("--once", words->once, "Print once, after one interval");
  command->add_flag("--json", words->json, "Print once, as JSON");
  command->footer(kTopFooter);
  command->callback([words, &exit_code] {
    if (words->once || words->json || ::isatty(STDOUT_FILENO) != 1) {
      print_once(*words);
    } else {
      watch(*words);
    }
    exit_code = 0;
  });
}

}  // namespace evenkeel::cli
