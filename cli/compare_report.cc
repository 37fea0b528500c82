#include "cli/compare_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/describe.h"
#include "cli/table.h"
#include "evenkeel/bytes.h"

namespace evenkeel::cli {
namespace {

template <class T>
nlohmann::ordered_json ordered_or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

std::string hex(std::uint64_t checksum) { return fmt::format("{:016x}", checksum); }

// An engine that read something else shows its own.
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

std::string title(const CompareOutcome& outcome) {
  const CompareSpec& spec = outcome.spec;
  return fmt::format("{}: {}\n{}, {:g} s an engine{}\n", describe_files(spec.paths), outcome.array,
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
                    "{}WRONG DATA: of the same {} {} the engines have different checksums: {}\n"
                    "hint: did the file change meanwhile? if not, please report this",
                    text.empty() ? "" : "\n", with_commas(outcome.checksum_items),
                    item_name(outcome.spec.pattern), who_read_what(outcome));
}

}  // namespace evenkeel::cli
