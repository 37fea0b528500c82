// The table of `compare` in plain words.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

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

// Which of two cases the figures stand for: a first pass over the data, or passes that follow.
std::string about_passes(const CompareOutcome& outcome) {
  std::string short_of;  // engines that did not come through once
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
        "In {:g} s not every engine read as much as the data has ({} of {}): these figures are of "
        "a first pass. ",
        outcome.spec.seconds, short_of, data);
  }
  if (!outcome.fits_memory()) {
    return text + fmt::format(
                      "The data ({}) does not fit {}, so later passes read the disk again: "
                      "the figures hold for long runs, too.",
                      data, memory);
  }
  if (!short_of.empty()) {
    const double seconds = 2 * outcome.spec.seconds / std::max(most_passes, 1e-3);
    return text + fmt::format(
                      "They are your case if you read the data once. It fits {}, so after "
                      "one pass map reads memory only: if you read it many times, see "
                      "--seconds {:.0f}.",
                      memory, std::clamp(std::ceil(seconds), 1.0, 86400.0));
  }
  return fmt::format(
      "The data ({}) fits {}, so after one pass map reads memory only. These figures are your case "
      "if you read the data many times and nothing else needs that memory; if it is smaller where "
      "the job runs, see --limit SIZE, and for a first pass --cold with fewer --seconds.",
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
    text += fmt::format("The same {} {} from every engine: checksum {:016x}.\n",
                        with_commas(outcome.checksum_items), item_name(outcome.spec.pattern),
                        outcome.checksum);
  }
  return text;
}

}  // namespace evenkeel::cli
