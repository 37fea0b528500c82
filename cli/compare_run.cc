#include "cli/compare_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/thread.h"
#include "cli/compare_work.h"
#include "cli/describe.h"
#include "cli/file_cache_state.h"
#include "cli/interrupt.h"
#include "cli/memory_limit.h"
#include "cli/terminal.h"
#include "cli/worker_process.h"
#include "evenkeel/budget.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "profile/machine.h"

namespace evenkeel::cli {
namespace {

std::string progress_text(const EngineOutcome& outcome, const std::string& of, double elapsed,
                          double seconds) {
  const Growth& growth = outcome.growth;
  return fmt::format("{} {:<7} {}  {:.1f} of {:g} s  RSS +{}  page cache {}", of,
                     engine_name(outcome.engine), bar(elapsed / seconds), elapsed, seconds,
                     format_size(growth.rss),
                     growth.cache ? "+" + format_size(*growth.cache) : "unknown");
}

void run_engine(const CompareSpec& spec, const CacheWatch& files, const std::string& of,
                EngineOutcome& outcome) {
  std::optional<MemoryLimit> limit;
  if (spec.memory_limit > 0) limit.emplace(spec.memory_limit);
  WorkerProcess worker("compare-worker");
  if (limit) limit->add(worker.pid());
  const nlohmann::json order = {{"spec", spec}, {"engine", engine_name(outcome.engine)}};
  worker.send(order.dump());
  const auto ready = nlohmann::json::parse(worker.line());
  MemoryWatch watch(worker.pid(), files, ready.at("peak_reset").get<bool>());
  Progress progress;
  const auto started = std::chrono::steady_clock::now();
  outcome.started = utc(std::chrono::system_clock::now());
  const auto cpu_before = thread_cpu_time();
  worker.send("go");
  std::optional<std::string> answer;
  while (!(answer = worker.line(MemoryWatch::kInterval))) {
    watch.sample();
    if (!progress.due()) continue;
    outcome.growth = watch.growth();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
    progress.show(progress_text(outcome, of, elapsed.count(), spec.seconds));
  }
  watch.sample_all();
  outcome.growth = watch.growth();
  outcome.samples = watch.take_samples();
  outcome.watching_cpu_seconds = (thread_cpu_time() - cpu_before).count();
  const auto result = nlohmann::json::parse(*answer);
  if (result.contains("error")) {
    outcome.error = result.at("error").get<std::string>();
  } else {
    outcome.work = result.get<WorkerResult>();
  }
}

// Opens the array once here, so that a bad file is one error and not one for each engine.
void describe_array(CompareOutcome& outcome) {
  const CompareSpec& spec = outcome.spec;
  ArrayOptions options;
  spec.raw.apply(options);
  options.budget = spec.budget;
  const Array array = Array::open(spec.paths, options);
  refuse_too_small(spec, array);
  outcome.array = describe(array);
  outcome.data_bytes = array.bytes();
  outcome.memory_bytes = available_memory().bytes;
  if (spec.memory_limit > 0) {
    outcome.memory_bytes = std::min(outcome.memory_bytes, spec.memory_limit);
  }
}

}  // namespace

const EngineOutcome* CompareOutcome::find(EngineKind kind) const {
  for (const EngineOutcome& engine : engines) {
    if (engine.engine == kind && engine.error.empty()) return &engine;
  }
  return nullptr;
}

double CompareOutcome::passes(const EngineOutcome& engine) const {
  return data_bytes == 0 ? 0 : double(engine.work.wanted_bytes) / double(data_bytes);
}

bool CompareOutcome::good() const {
  return differing.empty() &&
         std::all_of(engines.begin(), engines.end(), [](const auto& e) { return e.error.empty(); });
}

void compare_checksums(CompareOutcome& outcome) {
  std::vector<std::vector<Checkpoint>> runs;
  for (const EngineOutcome& engine : outcome.engines) {
    if (engine.error.empty()) runs.push_back(engine.work.checkpoints);
  }
  const std::uint64_t slices = last_common(runs);
  std::map<std::uint64_t, int> votes;
  for (const auto& run : runs) {
    if (const auto checksum = checksum_at(run, slices)) ++votes[*checksum];
  }
  if (votes.empty()) return;
  outcome.checksum = std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) {
                       return a.second < b.second;
                     })->first;
  for (const EngineOutcome& engine : outcome.engines) {
    if (!engine.error.empty()) continue;
    outcome.checksum_items = slices * engine.work.slice_items;
    if (checksum_at(engine.work.checkpoints, slices) != outcome.checksum) {
      outcome.differing.push_back(engine.engine);
    }
  }
}

CompareOutcome run_compare(const CompareSpec& spec, const std::vector<EngineKind>& engines,
                           CacheState cache) {
  const InterruptGuard interrupts;
  CompareOutcome outcome;
  outcome.spec = spec;
  outcome.cache = cache;
  describe_array(outcome);
  if (spec.memory_limit > 0) const MemoryLimit possible(spec.memory_limit);  // fail early, too
  outcome.readahead = readahead_bytes(spec.paths.front());
  const CacheWatch files(spec.paths);
  for (std::size_t i = 0; i < engines.size(); ++i) {
    if (cache == CacheState::kCold) make_cold(spec.paths);
    if (cache == CacheState::kWarm) make_warm(spec.paths);
    EngineOutcome engine;
    engine.engine = engines[i];
    const std::string of =
        fmt::format("{} {}/{}", pattern_name(spec.pattern), i + 1, engines.size());
    try {
      run_engine(spec, files, of, engine);
    } catch (const Error& error) {
      engine.error = error.what();
    }
    outcome.engines.push_back(std::move(engine));
  }
  compare_checksums(outcome);
  return outcome;
}

}  // namespace evenkeel::cli
