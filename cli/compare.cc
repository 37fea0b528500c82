// evenkeel compare: every engine on the user's own file, side by side. And compare-worker: one
// engine, in a process of its own. Lines of JSON: the spec comes in, "ready" goes out, "go" comes
// in, the result goes out; the process lives on until its stdin ends, so that it can be measured to
// the last.
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
#include "cli/compare_report.h"
#include "cli/compare_work.h"
#include "cli/json_out.h"
#include "cli/terminal.h"
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

// Resets VmHWM.
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

namespace {

struct Compare {
  std::vector<std::string> files;
  std::vector<EngineKind> engines = parse_engines("map,remap,advise,read,direct,auto");
  CompareSpec spec;
  bool cold = false, warm = false, json = false;
  PictureOptions pictures;
};

constexpr char kCompareFooter[] = R"(
Each engine works in a process of its own, on the same items in the same order; their checksums must
agree. Growth is measured from outside, above what the process held before it opened the file:
memory = RssAnon + the page cache of the files, RSS = all that is resident.

Engines: map     one mapping, kept, as np.memmap does; not bounded
         remap   a fresh mapping for each request
         advise  one mapping; pages are released with madvise after each read
         read    pread; pages are dropped from the page cache afterwards
         direct  O_DIRECT, many requests in flight
         fill    mappings that stay in the page cache; not bounded by the budget
         auto    what Evenkeel would choose

Examples:
  evenkeel compare features.npy --pattern rows --budget 64MiB --cold
  evenkeel compare train.bin --dtype uint16 --pattern crops --engines map,direct
  evenkeel compare train.bin --dtype uint16 --cold -o engines.html
  evenkeel compare 'shard-*.npy' --pattern scan --json > scan.json)";

int run(Compare& compare) {
  compare.spec.paths = expand_all(compare.files);
  require_writable(compare.pictures);
  const CacheState cache = compare.cold   ? CacheState::kCold
                           : compare.warm ? CacheState::kWarm
                                          : CacheState::kAsIs;
  const CompareOutcome outcome = run_compare(compare.spec, compare.engines, cache);
  if (compare.json) {
    print_json(to_report(outcome));
  } else {
    say(stdout, fmt::format("{}\n{}", to_table(outcome), to_words(outcome)));
  }
  std::fflush(stdout);
  write_pictures(compare.pictures, to_picture(outcome));
  if (!outcome.good()) {
    say(stderr, fmt::format("evenkeel: {}\n", complaint(outcome)));
    return 1;
  }
  if (!compare.json) {
    next_command("evenkeel doctor " + shell_word(outcome.spec.paths.front()),
                 "what this machine allows on that disk, and how to allow more");
  }
  return 0;
}

void add_work_options(CLI::App& command, Compare& compare) {
  CompareSpec& spec = compare.spec;
  add_parsed(
      command, "--pattern", "NAME",
      [&spec](const std::string& name) { spec.pattern = parse_pattern(name); },
      "crops (1,024 elements at random places; default), rows (shuffled) or scan (in order)");
  add_parsed(
      command, "--engines", "LIST",
      [&compare](const std::string& list) { compare.engines = parse_engines(list); },
      "Default: map,remap,advise,read,direct,auto");
  add_size(
      command, "--budget", [&spec](std::uint64_t bytes) { spec.budget = bytes; },
      "What the data may occupy in memory; default 64MiB");
  add_size(
      command, "--limit", [&spec](std::uint64_t bytes) { spec.memory_limit = bytes; },
      "Let each engine work inside a memory cgroup of this size, page cache included (needs root)");
  add_seconds(command, spec.seconds);
  add_count(command, "--seed", spec.seed, 0,
            fmt::format("Of the random order; default {}", spec.seed));
  add_count(command, "--chunk", spec.chunk, 1,
            "Rows (or crops) at a time; default 50,000 rows, 1,024 crops, 4 MiB of a scan, fewer "
            "where the budget is small");
  add_size(
      command, "--merge-gap", [&spec](std::uint64_t bytes) { spec.merge_gap = bytes; },
      "Reads whose gap is at most this become one; 0: none do");
}

}  // namespace

void add_compare(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("compare", "Every engine on your own file, side by side");
  auto compare = std::make_shared<Compare>();
  add_files(*command, compare->files);
  add_work_options(*command, *compare);
  CLI::Option* cold = command->add_flag("--cold", compare->cold,
                                        "Drop the files from the page cache before each engine");
  command
      ->add_flag("--warm", compare->warm, "Read the files into the page cache before each engine")
      ->excludes(cold);
  command->add_flag("--json", compare->json, "Print the figures as JSON");
  add_picture_options(*command, compare->pictures,
                      "A page with the memory of every engine over time");
  add_raw_options(*command, compare->spec.raw);
  command->footer(kCompareFooter);
  command->callback([compare, &exit_code] { exit_code = run(*compare); });
}

}  // namespace evenkeel::cli
