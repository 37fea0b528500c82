// evenkeel compare: runs every engine on the user's own file, or reads a URL in every way.
// compare-worker runs one engine or way in its own process. They exchange lines of JSON: the worker
// reads the spec, writes "ready", reads "go" and writes the result. It stays alive until its stdin
// ends, so that its memory can be measured to the end.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/text_file.h"
#include "base/visible.h"
#include "cli/commands.h"
#include "cli/compare_remote.h"
#include "cli/compare_report.h"
#include "cli/compare_work.h"
#include "cli/json_out.h"
#include "cli/profile_report.h"
#include "cli/terminal.h"
#include "cli/worker_process.h"
#include "evenkeel/error.h"
#include "evenkeel/meter.h"
#include "remote/address.h"

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

// Takes the baseline, waits for "go", works, and lives on until its stdin ends.
template <class Work>
int work_when_told(const Work& do_this) {
  touch_own_code();
  disk_bytes_read();
  const bool reset = reset_peak();
  tell({{"ready", true}, {"peak_reset", reset}});
  ask();
  try {
    do_this([](const auto& result) {
      tell(result);
      std::string ignored;
      std::getline(std::cin, ignored);
    });
  } catch (const Error& error) {
    tell({{"error", error.what()}});
  }
  return 0;
}

int work_remotely(const CompareSpec& spec, RemoteWay way) {
  try {  // libcurl is no part of the data: it is loaded before the baseline is taken
    (void)remote_pattern(spec);
  } catch (const Error& error) {
    tell({{"error", error.what()}});
    return 0;
  }
  return work_when_told([&](const auto& finished) { do_remote_work(spec, way, finished); });
}

int work() {
  die_with_parent();
  const nlohmann::json order = nlohmann::json::parse(ask());
  const auto spec = order.at("spec").get<CompareSpec>();
  if (order.contains("way")) {
    return work_remotely(spec, parse_way(order.at("way").get<std::string>()));
  }
  const EngineKind engine = parse_engine(order.at("engine").get<std::string>());
  return work_when_told([&](const auto& finished) { do_work(spec, engine, finished); });
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
  std::vector<const CLI::Option*> for_files;  // options that make no sense for URLs
  const CLI::Option* pattern = nullptr;
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

URLs (http, https, s3, gs) are read by one engine, in several ways:
         single    one item per request, one request after the other, as readers do that fetch each
                   sample by itself
         parallel  the same items in the same order, many requests in flight
         blocks    rows in order "blocks"; for --pattern rows
         parallel+cache, blocks+cache   the same with the cache on disk that --cache names
The cache in memory is off. Ways of the same order must have the same checksum.

Examples:
  evenkeel compare features.npy --pattern rows --budget 64MiB --cold
  evenkeel compare train.bin --dtype uint16 --pattern crops --engines map,direct
  evenkeel compare train.bin --dtype uint16 --cold -o engines.html
  evenkeel compare 'shard-*.npy' --pattern scan --json > scan.json
  evenkeel compare s3://bucket/features.npy --pattern rows --cache /nvme/ek:200GiB)";

int run_remote(Compare& compare) {
  for (const CLI::Option* option : compare.for_files) {
    if (option->count() == 0) continue;
    throw Error(ErrorKind::kInvalid, "compare", option->get_name() + " is for files, not for URLs");
  }
  CompareSpec& spec = compare.spec;
  if (compare.pattern->count() == 0) spec.pattern = remote_pattern(spec);
  const RemoteComparison comparison = compare_remote(spec);
  if (compare.json) {
    print_json(to_report(comparison));
  } else {
    say(stdout, fmt::format("{}\n{}", to_table(comparison), to_words(comparison)));
  }
  std::fflush(stdout);
  if (!comparison.good()) {
    say(stderr, fmt::format("evenkeel: {}\n", complaint(comparison)));
    return 1;
  }
  // A query may be secret, and is not shown.
  if (!compare.json && without_query(spec.paths.front()) == spec.paths.front()) {
    next_command("evenkeel doctor " + shell_word(spec.paths.front()),
                 "the latency and bandwidth of this server");
  }
  return 0;
}

int run(Compare& compare) {
  compare.spec.paths = expand_all(compare.files);
  if (is_url(compare.spec.paths.front())) return run_remote(compare);
  if (!compare.spec.disk_cache.empty()) {
    throw Error(ErrorKind::kInvalid, "compare", "--cache is for URLs, and this is a file")
        .in(compare.spec.paths.front());
  }
  for (const std::string& path : {compare.pictures.html, compare.pictures.svg}) {
    require_report_apart(compare.spec.paths, path);
  }
  require_writable(compare.pictures, compare.json);
  const CacheState cache = compare.cold   ? CacheState::kCold
                           : compare.warm ? CacheState::kWarm
                                          : CacheState::kAsIs;
  const CompareOutcome outcome = run_compare(compare.spec, compare.engines, cache);
  if (compare.json) {
    print_json(to_report(outcome));
  } else {
    say(where_tables_go(compare.pictures),
        fmt::format("{}\n{}", to_table(outcome), to_words(outcome)));
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
  compare.pattern = add_parsed(
      command, "--pattern", "NAME",
      [&spec](const std::string& name) { spec.pattern = parse_pattern(name); },
      "crops (1,024 elements at random places; default), rows (shuffled; default for URLs of "
      "arrays "
      "with several axes) or scan (in order)");
  compare.for_files.push_back(add_parsed(
      command, "--engines", "LIST",
      [&compare](const std::string& list) { compare.engines = parse_engines(list); },
      "Default: map,remap,advise,read,direct,auto"));
  add_size(
      command, "--budget", [&spec](std::uint64_t bytes) { spec.budget = bytes; },
      "Memory that the data may occupy; default 64MiB");
  compare.for_files.push_back(add_size(
      command, "--limit", [&spec](std::uint64_t bytes) { spec.memory_limit = bytes; },
      "Run each engine in a memory cgroup of this size, page cache included (needs root)"));
  command
      .add_option("--cache", spec.disk_cache,
                  "For URLs: also read through this cache on disk, as in /nvme/ek:200GiB")
      ->type_name("FOLDER:SIZE");
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
  CLI::App* command = app.add_subcommand(
      "compare", "Run every engine on your own file, or read a URL in every way, and compare");
  auto compare = std::make_shared<Compare>();
  add_files(*command, compare->files);
  add_work_options(*command, *compare);
  CLI::Option* cold = command->add_flag("--cold", compare->cold,
                                        "Drop the files from the page cache before each engine");
  CLI::Option* warm = command
                          ->add_flag("--warm", compare->warm,
                                     "Read the files into the page cache before each engine")
                          ->excludes(cold);
  command->add_flag("--json", compare->json, "Print the figures as JSON");
  add_picture_options(*command, compare->pictures,
                      "HTML page with the memory of every engine over time");
  for (const CLI::Option* option :
       {cold, warm, command->get_option("--output"), command->get_option("--svg")}) {
    compare->for_files.push_back(option);
  }
  add_raw_options(*command, compare->spec.raw);
  command->footer(kCompareFooter);
  command->callback([compare, &exit_code] { exit_code = run(*compare); });
}

}  // namespace evenkeel::cli
