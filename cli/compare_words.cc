// The table of `compare` in plain words.
#include <fmt/core.h>

#include <algorithm>

#include "cli/compare_report.h"
#include "cli/describe.h"
#include "cli/table.h"
#include "evenkeel/bytes.h"

namespace evenkeel::cli {
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
    return fmt::format(", {} × as fast as a mapping that is kept (map)", describe_ratio(times));
  }
  return fmt::format(", {} × the speed of map, which {}", describe_ratio(times),
                     read_once(map) ? "soon held all it needs in memory and read no more"
                                    : "takes as much memory as it can get");
}

std::string about_speed(const CompareOutcome& outcome) {
  const EngineOutcome* best = fastest_within(outcome);
  if (!best) return "";
  std::string text = fmt::format("Of the engines that keep to the budget {} is the fastest",
                                 engine_name(best->engine));
  const EngineOutcome* map = outcome.find(EngineKind::kMap);
  if (map && map != best && map->per_second() > 0) text += against_map(*best, *map);
  return text + fmt::format("; memory grew by {} at most.", format_size(*best->growth.memory));
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
      "Over the line of {}: {}. Nothing leaked: these are pages of the file that the kernel may "
      "take "
      "back, but RSS-based job killers and cgroup accounting count them.",
      format_size(outcome.spec.budget), over);
}

std::string about_reading(const CompareOutcome& outcome) {
  const EngineOutcome* map = outcome.find(EngineKind::kMap);
  if (!map || !outcome.readahead || outcome.spec.pattern == Pattern::kScan) return "";
  const std::uint64_t disk = map->work.disk_bytes.value_or(0);
  if (disk < 4 * map->work.wanted_bytes) return "";
  return fmt::format(
      "map read {} from the disk for {} wanted: the kernel fetches up to {} around each page that "
      "is "
      "touched.",
      format_size(disk), format_size(map->work.wanted_bytes), format_size(*outcome.readahead));
}

std::string about_unknown(const CompareOutcome& outcome) {
  const bool unknown = std::any_of(
      outcome.engines.begin(), outcome.engines.end(),
      [](const EngineOutcome& engine) { return engine.error.empty() && !engine.growth.cache; });
  if (!unknown) return "";
  return "The page cache is unknown: the kernel tells it only of files that you own or may write.";
}

}  // namespace

bool read_once(const EngineOutcome& map) {
  return map.work.disk_bytes.value_or(map.work.wanted_bytes) < map.work.wanted_bytes / 2;
}

std::string verdict(const CompareOutcome& outcome) {
  const std::string speed = about_speed(outcome);
  return speed.empty() ? "No engine kept to the budget." : speed;
}

std::string to_words(const CompareOutcome& outcome) {
  std::string text;
  for (const std::string& sentence : {about_speed(outcome), about_memory(outcome),
                                      about_reading(outcome), about_unknown(outcome)}) {
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
    text += fmt::format("The same {} {} from every engine: checksum {:016x}.\n",
                        with_commas(outcome.checksum_items), item_name(outcome.spec.pattern),
                        outcome.checksum);
  }
  return text;
}

}  // namespace evenkeel::cli
