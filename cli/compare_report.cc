#include "cli/compare_report.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/visible.h"
#include "cli/describe.h"
#include "cli/profile_report.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "profile/machine.h"

namespace evenkeel::cli {
namespace {

template <class T>
nlohmann::ordered_json ordered_or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

std::string hex(std::uint64_t checksum) { return fmt::format("{:016x}", checksum); }

// The engine's own checksum: it differs if the engine read other data.
std::uint64_t checksum_of(const CompareOutcome& outcome, const EngineOutcome& engine) {
  if (engine.work.slice_items == 0) return 0;
  return checksum_at(engine.work.checkpoints, outcome.checksum_items / engine.work.slice_items)
      .value_or(0);
}

nlohmann::ordered_json engine_report(const CompareOutcome& outcome, const EngineOutcome& engine) {
  const WorkerResult& work = engine.work;
  const Growth& growth = engine.growth;
  return {{"engine", engine_name(engine.engine)},
          {"items", work.items},
          {"seconds", work.seconds},
          {"items_per_s", engine.per_second()},
          {"wanted_bytes", work.wanted_bytes},
          {"passes", outcome.passes(engine)},
          {"disk_bytes", ordered_or_null(work.disk_bytes)},
          {"rss_growth_peak_bytes", growth.rss},
          {"anon_growth_peak_bytes", growth.anon},
          {"cache_growth_peak_bytes", ordered_or_null(growth.cache)},
          {"memory_growth_peak_bytes", ordered_or_null(growth.memory)},
          {"within_budget", ordered_or_null(growth.within(outcome.spec.budget))},
          {"checksum", hex(checksum_of(outcome, engine))},
          {"checksum_items", outcome.checksum_items},
          {"chosen", engine_name(work.engine.chosen)},
          {"how", work.engine.how},
          {"why", work.engine.why}};
}

std::string yes_or_no(std::optional<bool> within) {
  return !within ? "unknown" : *within ? "yes" : "NO";
}

std::string read_per_wanted(const WorkerResult& work) {
  if (!work.disk_bytes || work.wanted_bytes == 0) return "unknown";
  return describe_ratio(double(*work.disk_bytes) / double(work.wanted_bytes)) + " ×";
}

std::string title(const CompareOutcome& outcome) {
  const CompareSpec& spec = outcome.spec;
  return fmt::format("{}: {}\n{}, {:g} s per engine{}\n", describe_files(spec.paths), outcome.array,
                     work_in_words(outcome), spec.seconds,
                     outcome.readahead ? ", readahead " + format_size(*outcome.readahead) : "");
}

// "0123456789abcdef from map, read; fedcba9876543210 from direct"
std::string who_read_what(const CompareOutcome& outcome) {
  std::map<std::string, std::string> engines;
  for (const EngineOutcome& engine : outcome.engines) {
    if (!engine.error.empty()) continue;
    std::string& names = engines[hex(checksum_of(outcome, engine))];
    names += (names.empty() ? "" : ", ") + std::string(engine_name(engine.engine));
  }
  std::string text;
  for (const auto& [checksum, names] : engines) {
    text += fmt::format("{}{} from {}", text.empty() ? "" : "; ", checksum, names);
  }
  return text;
}

}  // namespace

std::string pattern_in_words(Pattern pattern) {
  switch (pattern) {
    case Pattern::kCrops:
      return "crops of 1,024 elements at random places";
    case Pattern::kRows:
      return "rows in shuffled order";
    case Pattern::kScan:
      break;
  }
  return "all rows in order";
}

std::string work_in_words(const CompareOutcome& outcome) {
  const char* cache = outcome.cache == CacheState::kCold   ? ", cold"
                      : outcome.cache == CacheState::kWarm ? ", warm"
                                                           : "";
  const std::uint64_t limit = outcome.spec.memory_limit;
  return fmt::format("{}{}, budget {}{}", pattern_in_words(outcome.spec.pattern), cache,
                     format_size(outcome.spec.budget),
                     limit ? ", inside a memory limit of " + format_size(limit) : "");
}

nlohmann::ordered_json to_report(const CompareOutcome& outcome) {
  const CompareSpec& spec = outcome.spec;
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  nlohmann::ordered_json failures = nlohmann::ordered_json::array();
  for (const EngineOutcome& engine : outcome.engines) {
    if (engine.error.empty()) {
      results.push_back(engine_report(outcome, engine));
    } else {
      failures.push_back({{"engine", engine_name(engine.engine)}, {"error", engine.error}});
    }
  }
  return {{"file", spec.paths.front()},
          {"files", spec.paths},
          {"array", outcome.array},
          {"data_bytes", outcome.data_bytes},
          {"free_memory_bytes", outcome.memory_bytes},
          {"fits_free_memory", outcome.fits_memory()},
          {"pattern", pattern_name(spec.pattern)},
          {"budget_bytes", spec.budget},
          {"readahead_kb", outcome.readahead ? nlohmann::ordered_json(*outcome.readahead / 1024)
                                             : nlohmann::ordered_json()},
          {"cold", outcome.cache == CacheState::kCold},
          {"warm", outcome.cache == CacheState::kWarm},
          {"chunk", outcome.engines.empty() ? 0 : outcome.engines.front().work.chunk},
          {"seed", spec.seed},
          {"memory_limit_bytes", spec.memory_limit ? nlohmann::ordered_json(spec.memory_limit)
                                                   : nlohmann::ordered_json()},
          {"results", std::move(results)},
          {"failures", std::move(failures)}};
}

std::string to_table(const CompareOutcome& outcome) {
  const std::string items = item_name(outcome.spec.pattern) + "/s";
  const EngineOutcome* map = outcome.find(EngineKind::kMap);
  std::vector<std::string> head = {"engine", items};
  if (map) head.push_back("× map");
  for (const char* name : {"disk/wanted", "memory growth", "RSS growth", "within budget"}) {
    head.push_back(name);
  }
  Table table(std::move(head));
  for (const EngineOutcome& engine : outcome.engines) {
    const std::string name(engine_name(engine.engine));
    if (!engine.error.empty()) {
      table.add({name, "failed"});
      continue;
    }
    std::vector<std::string> row = {name, describe_rate(engine.per_second())};
    if (map) row.push_back(describe_ratio(engine.per_second() / map->per_second()));
    row.push_back(read_per_wanted(engine.work));
    row.push_back(size_or_unknown(engine.growth.memory));
    row.push_back(format_size(engine.growth.rss));
    row.push_back(yes_or_no(engine.growth.within(outcome.spec.budget)));
    table.add(std::move(row));
  }
  return title(outcome) + "\n" + table.text();
}

std::string complaint(const CompareOutcome& outcome) {
  std::string text;
  for (const EngineOutcome& engine : outcome.engines) {
    if (engine.error.empty()) continue;
    text += fmt::format("{}engine {}: {}", text.empty() ? "" : "\n", engine_name(engine.engine),
                        engine.error);
  }
  if (outcome.differing.empty()) return text;
  return text + fmt::format(
                    "{}WRONG DATA: the engines have different checksums for the same {} {}: {}\n"
                    "hint: did the file change meanwhile? if not, please report this",
                    text.empty() ? "" : "\n", with_commas(outcome.checksum_items),
                    item_name(outcome.spec.pattern), who_read_what(outcome));
}

namespace {

bool is_within(const CompareOutcome& outcome, const EngineOutcome& engine) {
  return engine.growth.within(outcome.spec.budget).value_or(false);
}

const EngineOutcome* fastest_within(const CompareOutcome& outcome) {
  const EngineOutcome* best = nullptr;
  for (const EngineOutcome& engine : outcome.engines) {
    if (!engine.error.empty() || !is_within(outcome, engine)) continue;
    if (!best || engine.per_second() > best->per_second()) best = &engine;
  }
  return best;
}

std::string against_map(const EngineOutcome& best, const EngineOutcome& map) {
  const double times = best.per_second() / map.per_second();
  if (times >= 1) {
    return fmt::format(", {} × as fast as one permanent mapping (map)", describe_ratio(times));
  }
  return fmt::format(
      ", {} × the speed of map, which {}", describe_ratio(times),
      read_once(map) ? "soon had all it needs in memory" : "takes as much memory as it can get");
}

std::string about_speed(const CompareOutcome& outcome) {
  const EngineOutcome* best = fastest_within(outcome);
  if (!best) return "";
  std::string text =
      fmt::format("The fastest engine within the budget is {}", engine_name(best->engine));
  const EngineOutcome* map = outcome.find(EngineKind::kMap);
  if (map && map != best && map->per_second() > 0) text += against_map(*best, *map);
  return text + fmt::format("; memory grew by at most {}.", format_size(*best->growth.memory));
}

// Says whether the figures describe a first pass over the data or repeated passes.
std::string about_passes(const CompareOutcome& outcome) {
  std::string short_of;  // engines that did not finish one pass
  double most_passes = 0;
  for (const EngineOutcome& engine : outcome.engines) {
    if (!engine.error.empty()) continue;
    const double passes = outcome.passes(engine);
    most_passes = std::max(most_passes, passes);
    if (passes >= 1) continue;
    short_of += fmt::format("{}{} {:.0f} %", short_of.empty() ? "" : ", ",
                            engine_name(engine.engine), 100 * passes);
  }
  const std::string data = format_size(outcome.data_bytes);
  const std::string memory =
      fmt::format("{} of {}", outcome.spec.memory_limit > 0 ? "the limit" : "free memory",
                  format_size(outcome.memory_bytes));
  std::string text;
  if (!short_of.empty()) {
    text = fmt::format(
        "In {:g} s some engines read less than all the data ({} of {}): these figures describe a "
        "first pass. ",
        outcome.spec.seconds, short_of, data);
  }
  if (!outcome.fits_memory()) {
    return text + fmt::format(
                      "The data ({}) does not fit {}, so later passes read the disk again: "
                      "the figures also hold for long runs.",
                      data, memory);
  }
  if (!short_of.empty()) {
    const double seconds = 2 * outcome.spec.seconds / std::max(most_passes, 1e-3);
    return text + fmt::format(
                      "They apply if you read the data once. It fits {}, so after one pass map "
                      "reads only memory: if you read it many times, use --seconds {:.0f}.",
                      memory, std::clamp(std::ceil(seconds), 1.0, 86400.0));
  }
  return fmt::format(
      "The data ({}) fits {}, so after one pass map reads only memory. These figures apply if you "
      "read the data many times and nothing else needs that memory. If your job will have less "
      "memory, use --limit SIZE. For a first pass, use --cold with fewer --seconds.",
      data, memory);
}

std::string about_memory(const CompareOutcome& outcome) {
  std::string over;
  for (const EngineOutcome& engine : outcome.engines) {
    if (!engine.error.empty() || engine.growth.within(outcome.spec.budget) != false) continue;
    over += fmt::format("{}{} ({})", over.empty() ? "" : ", ", engine_name(engine.engine),
                        format_size(std::max(engine.growth.rss, engine.growth.memory.value_or(0))));
  }
  if (over.empty()) return "";
  return fmt::format(
      "Over the budget of {}: {}. Nothing leaked: these are pages of the file that the kernel may "
      "take back, but RSS limits and cgroup accounting count them.",
      format_size(outcome.spec.budget), over);
}

std::string about_reading(const CompareOutcome& outcome) {
  const EngineOutcome* map = outcome.find(EngineKind::kMap);
  if (!map || !outcome.readahead || outcome.spec.pattern == Pattern::kScan) return "";
  const std::uint64_t disk = map->work.disk_bytes.value_or(0);
  if (disk < 4 * map->work.wanted_bytes) return "";
  return fmt::format(
      "map read {} from the disk for {} wanted: the kernel fetches up to {} around each page that "
      "is touched.",
      format_size(disk), format_size(map->work.wanted_bytes), format_size(*outcome.readahead));
}

std::string about_unknown(const CompareOutcome& outcome) {
  const bool unknown = std::any_of(
      outcome.engines.begin(), outcome.engines.end(),
      [](const EngineOutcome& engine) { return engine.error.empty() && !engine.growth.cache; });
  if (!unknown) return "";
  return "The page cache is unknown: the kernel reports it only for files that you own or may "
         "write.";
}

}  // namespace

bool read_once(const EngineOutcome& map) {
  return map.work.disk_bytes.value_or(map.work.wanted_bytes) < map.work.wanted_bytes / 2;
}

std::string verdict(const CompareOutcome& outcome) {
  const std::string speed = about_speed(outcome);
  return speed.empty() ? "No engine stayed within the budget." : speed;
}

std::string to_words(const CompareOutcome& outcome) {
  std::string text;
  for (const std::string& sentence :
       {about_speed(outcome), about_passes(outcome), about_memory(outcome), about_reading(outcome),
        about_unknown(outcome)}) {
    if (!sentence.empty()) text += wrapped(sentence, 0);
  }
  for (const EngineKind kind : {EngineKind::kDirect, EngineKind::kAuto}) {
    if (const EngineOutcome* engine = outcome.find(kind)) {
      text += wrapped(fmt::format("{}: {}; {}", engine_name(kind), engine->work.engine.how,
                                  engine->work.engine.why),
                      0);
    }
  }
  if (outcome.differing.empty() && outcome.checksum_items > 0) {
    text += fmt::format("Every engine read the same {} {}: checksum {:016x}.\n",
                        with_commas(outcome.checksum_items), item_name(outcome.spec.pattern),
                        outcome.checksum);
  }
  return text;
}

namespace {

const char* headline(Pattern pattern) {
  return pattern == Pattern::kCrops  ? "Random crops"
         : pattern == Pattern::kRows ? "Shuffled rows"
                                     : "A scan";
}

std::uint64_t size_of(const std::string& path) {
  std::error_code gone;
  const auto size = std::filesystem::file_size(path, gone);
  return gone ? 0 : size;
}

std::string conditions(const CompareOutcome& outcome) {
  std::string text = outcome.cache == CacheState::kCold ? " Cold" : "";
  if (const std::uint64_t limit = outcome.spec.memory_limit) {
    text += fmt::format("{} inside a memory limit of {}", text.empty() ? " All" : ", each",
                        format_size(limit));
  }
  return text.empty() ? "" : text + ".";
}

ProfileRun run_of(const CompareOutcome& outcome, const EngineOutcome& engine) {
  ProfileRun run;
  run.name = engine_name(engine.engine);
  run.interval_seconds = std::chrono::duration<double>(MemoryWatch::kInterval).count();
  run.samples = engine.samples;
  run.started = engine.started;
  run.own_cpu_seconds = engine.watching_cpu_seconds;
  run.seconds = run.samples.empty() ? 0 : run.samples.back().seconds;
  for (const std::string& path : outcome.spec.paths) {
    run.files.push_back({path, size_of(path), std::nullopt});
  }
  if (!engine.error.empty()) {
    run.ended = "failed";
    run.notes.push_back(run.name + " failed: " + engine.error);
    return run;
  }
  run.ended = "worked";
  run.facts.emplace_back(item_name(outcome.spec.pattern) + "/s",
                         describe_rate(engine.per_second()));
  if (engine.work.disk_bytes) {
    run.facts.emplace_back("read", format_size(*engine.work.disk_bytes));
  }
  return run;
}

}  // namespace

ProfileReport to_picture(const CompareOutcome& outcome) {
  ProfileReport report;
  std::uint64_t size = 0;
  for (const std::string& path : outcome.spec.paths) size += size_of(path);
  report.title = fmt::format("{} from {} under a budget of {}", headline(outcome.spec.pattern),
                             format_size(size), format_size(outcome.spec.budget));
  report.subtitle = verdict(outcome) + conditions(outcome);
  report.growth = true;
  report.budget = outcome.spec.budget;
  describe_machine(report, outcome.spec.paths.front());
  for (const EngineOutcome& engine : outcome.engines) {
    report.runs.push_back(run_of(outcome, engine));
  }
  return report;
}

void add_picture_options(CLI::App& command, PictureOptions& options, const std::string& html_help) {
  command.add_option("-o,--output", options.html, html_help)->type_name("FILE");
  command.add_option("--svg", options.svg, "The same as a picture for papers and READMEs")
      ->type_name("FILE");
}

void require_writable(const PictureOptions& options, bool json) {
  std::vector<std::string> outputs;
  if (json) outputs.emplace_back("-");
  for (const std::string& path : {options.html, options.svg}) {
    if (!path.empty()) outputs.push_back(path);
  }
  require_writable_outputs(outputs);
}

std::FILE* where_tables_go(const PictureOptions& options) {
  return options.html == "-" || options.svg == "-" ? stderr : stdout;
}

void write_pictures(const PictureOptions& options, const ProfileReport& picture) {
  const auto write = [](const std::string& path, const std::string& text) {
    write_output(path, text);
    if (path != "-") say(stderr, fmt::format("picture: {}\n", visible(path)));
  };
  if (!options.html.empty()) write(options.html, to_html(picture));
  if (!options.svg.empty()) write(options.svg, to_svg(picture));
}

}  // namespace evenkeel::cli
