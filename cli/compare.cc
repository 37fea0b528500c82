// evenkeel compare: runs every engine on the user's own file. compare-worker runs one engine in its
// own process. They exchange lines of JSON: the worker reads the spec, writes "ready", reads "go"
// and writes the result. It stays alive until its stdin ends, so that its memory can be measured to
// the end.
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

// The program's own code is paged in when it first runs. It is not part of the data, so all of it
// is brought in before the baseline is taken.
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
  if (!std::getline(std::cin, line)) ::_exit(1);  // the parent has ended
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
Each engine runs in its own process, on the same items in the same order; their checksums must agree.
Growth is measured from outside, relative to the process before it opened the file:
memory = RssAnon + page cache of the files, RSS = all resident pages.

Engines: map     one mapping for the whole run, like np.memmap; not bounded by the budget
         remap   a new mapping for each request
         advise  one mapping; pages are released with madvise after each read
         read    pread; pages are dropped from the page cache afterwards
         direct  O_DIRECT, many requests in flight
         fill    mappings that stay in the page cache; not bounded by the budget
         auto    what Evenkeel chooses by default

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
      "Memory that the data may occupy; default 64MiB");
  add_size(
      command, "--limit", [&spec](std::uint64_t bytes) { spec.memory_limit = bytes; },
      "Run each engine in a memory cgroup of this size, page cache included (needs root)");
  add_seconds(command, spec.seconds);
  add_count(command, "--seed", spec.seed, 0,
            fmt::format("Seed of the random order; default {}", spec.seed));
  add_count(command, "--chunk", spec.chunk, 1,
            "Rows (or crops) at a time; default 50,000 rows, 1,024 crops, 4 MiB of a scan, fewer "
            "if the budget is small");
  add_size(
      command, "--merge-gap", [&spec](std::uint64_t bytes) { spec.merge_gap = bytes; },
      "Merge reads that are at most this far apart; 0: never merge");
}

}  // namespace

void add_compare(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("compare", "Run every engine on your own file, and compare them");
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
                      "HTML page with the memory of every engine over time");
  add_raw_options(*command, compare->spec.raw);
  command->footer(kCompareFooter);
  command->callback([compare, &exit_code] { exit_code = run(*compare); });
}

}  // namespace evenkeel::cli
