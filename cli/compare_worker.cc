// One engine, in a process of its own. Lines of JSON: the spec comes in, "ready" goes out, "go"
// comes in, the result goes out; the process lives on until its stdin ends, so that it can be
// measured to the last.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/text_file.h"
#include "cli/commands.h"
#include "cli/compare_work.h"
#include "cli/worker_process.h"
#include "evenkeel/error.h"
#include "evenkeel/meter.h"

namespace evenkeel::cli {
namespace {

void tell(const nlohmann::json& json) {
  fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  std::fflush(stdout);
}

// The program's own code comes into memory as it is first run; it is no part of the data, so all of
// it is brought in before the baseline is taken.
void touch_own_code() {
  const std::string maps = read_text_file("/proc/self/maps").value_or("");
  std::string_view rest = maps, line;
  while (take_line(rest, line)) {
    void *begin = nullptr, *end = nullptr;
    char mode[5] = "";
    if (std::sscanf(std::string(line).c_str(), "%p-%p %4s", &begin, &end, mode) != 3) continue;
    if (mode[0] != 'r' || line.find(" /") == std::string_view::npos) continue;
    constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, since Linux 5.14
    ::madvise(begin, static_cast<std::size_t>(static_cast<char*>(end) - static_cast<char*>(begin)),
              kPopulateRead);
  }
}

// From here on VmHWM counts anew.
bool reset_peak() {
  const Fd file(::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC));
  return file && ::write(file.get(), "5", 1) == 1;
}

std::string ask() {
  std::string line;
  if (!std::getline(std::cin, line)) ::_exit(1);  // the parent has gone
  return line;
}

int work() {
  die_with_parent();
  const nlohmann::json order = nlohmann::json::parse(ask());
  const auto spec = order.at("spec").get<CompareSpec>();
  const EngineKind engine = parse_engine(order.at("engine").get<std::string>());
  touch_own_code();
  disk_bytes_read();
  const bool reset = reset_peak();
  tell({{"ready", true}, {"peak_reset", reset}});
  ask();
  try {
    do_work(spec, engine, [](const WorkerResult& result) {
      tell(result);
      std::string ignored;
      std::getline(std::cin, ignored);
    });
  } catch (const Error& error) {
    tell({{"error", error.what()}});
  }
  return 0;
}

}  // namespace

void add_compare_worker(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("compare-worker", "One engine of a compare");
  command->group("");  // hidden
  command->callback([&exit_code] { exit_code = work(); });
}

}  // namespace evenkeel::cli
