#include "cli/compare_remote.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/memory.h"
#include "base/visible.h"
#include "cli/compare_report.h"
#include "cli/describe.h"
#include "cli/interrupt.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/worker_process.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

// Servers are slow: less is read at a time than from files, so that the time is kept.
constexpr std::uint64_t kMostItemsAtOnce = 1024, kItemsInSlice = 16;

constexpr RemoteWay kAllWays[] = {RemoteWay::kSingle, RemoteWay::kParallel, RemoteWay::kBlocks,
                                  RemoteWay::kParallelCached, RemoteWay::kBlocksCached};

ArrayOptions options_of(const CompareSpec& spec, bool disk_cache) {
  ArrayOptions options;
  spec.raw.apply(options);
  options.budget = spec.budget;
  options.flatten = spec.pattern == Pattern::kCrops;
  options.merge_gap = spec.merge_gap;
  options.cache = 0;  // a later pass would measure memory
  if (disk_cache) options.disk_cache = spec.disk_cache;
  return options;
}

}  // namespace

std::string way_name(RemoteWay way) {
  switch (way) {
    case RemoteWay::kSingle:
      return "single";
    case RemoteWay::kParallel:
      return "parallel";
    case RemoteWay::kBlocks:
      return "blocks";
    case RemoteWay::kParallelCached:
      return "parallel+cache";
    case RemoteWay::kBlocksCached:
      return "blocks+cache";
  }
  return "";
}

RemoteWay parse_way(const std::string& name) {
  const auto* const found = std::ranges::find(kAllWays, name, way_name);
  if (found == std::end(kAllWays)) throw Error(ErrorKind::kInvalid, "way", name + " is none");
  return *found;
}

bool in_blocks(RemoteWay way) {
  return way == RemoteWay::kBlocks || way == RemoteWay::kBlocksCached;
}

bool uses_disk_cache(RemoteWay way) {
  return way == RemoteWay::kParallelCached || way == RemoteWay::kBlocksCached;
}

std::vector<RemoteWay> ways_of(const CompareSpec& spec) {
  std::vector<RemoteWay> ways;
  for (const RemoteWay way : kAllWays) {
    if (in_blocks(way) && spec.pattern != Pattern::kRows) continue;
    if (uses_disk_cache(way) && spec.disk_cache.empty()) continue;
    ways.push_back(way);
  }
  return ways;
}

void to_json(nlohmann::json& json, const RemoteWork& work) {
  json = {{"work", work.work},
          {"requests", work.requests},
          {"network_bytes", work.network_bytes},
          {"disk_cache_bytes", work.disk_cache_bytes},
          {"retries", work.retries},
          {"hedges", work.hedges}};
}

void from_json(const nlohmann::json& json, RemoteWork& work) {
  json.at("work").get_to(work.work);
  json.at("requests").get_to(work.requests);
  json.at("network_bytes").get_to(work.network_bytes);
  json.at("disk_cache_bytes").get_to(work.disk_cache_bytes);
  json.at("retries").get_to(work.retries);
  json.at("hedges").get_to(work.hedges);
}

double WayOutcome::per_second() const {
  return done.work.seconds > 0 ? double(done.work.items) / done.work.seconds : 0;
}

const WayOutcome* RemoteComparison::find(RemoteWay way) const {
  for (const WayOutcome& one : ways) {
    if (one.way == way && one.error.empty()) return &one;
  }
  return nullptr;
}

bool RemoteComparison::same_bytes() const {
  for (const WayOutcome& one : ways) {
    for (const WayOutcome& other : ways) {
      if (one.error.empty() && other.error.empty() && in_blocks(one.way) == in_blocks(other.way) &&
          one.checksum != other.checksum) {
        return false;
      }
    }
  }
  return true;
}

bool RemoteComparison::good() const {
  return same_bytes() && std::ranges::all_of(ways, [](const auto& w) { return w.error.empty(); });
}

Pattern remote_pattern(const CompareSpec& spec) {
  CompareSpec as_stored = spec;
  as_stored.pattern = Pattern::kRows;
  const Array array = Array::open(spec.paths, options_of(as_stored, false));
  return array.shape().size() > 1 ? Pattern::kRows : Pattern::kCrops;
}

namespace {

constexpr std::uint64_t kMoreThanAnyBudget = std::uint64_t{1} << 62;

// Items `at` .. of the order, a batch at a time, until the time is up.
class ItemReader {
 public:
  ItemReader(const Array& array, const CompareSpec& spec, std::uint64_t batch)
      : array_(array),
        spec_(spec),
        crops_(spec.pattern == Pattern::kCrops),
        item_bytes_(array.row_bytes() * (crops_ ? kCropElements : 1)),
        buffer_(array.budget(), checked_mul(batch, item_bytes_).value_or(kMoreThanAnyBudget),
                "rows of one batch"),
        indices_(batch) {}

  void run(Tally& tally) {
    for (std::uint64_t at = 0; tally.take(next(at)); at += indices_.size()) {
    }
  }

 private:
  std::span<const std::byte> next(std::uint64_t at) {
    for (std::uint64_t& index : indices_) index = index_at(at++);
    const std::span<std::byte> out(buffer_.data(), indices_.size() * item_bytes_);
    if (crops_) {
      array_.crops(indices_, kCropElements, out);
    } else {
      array_.gather(indices_, out);
    }
    return out;
  }

  std::uint64_t index_at(std::uint64_t position) {
    if (crops_) return uniform_draw(spec_.seed, 0, position, array_.rows() - kCropElements + 1);
    const std::uint64_t epoch = position / array_.rows(), place = position % array_.rows();
    if (spec_.pattern == Pattern::kScan) return place;
    if (!order_ || order_->order().epoch != epoch) {
      order_.emplace(shuffled(spec_.seed, epoch), array_.rows());
    }
    return (*order_)[place];
  }

  const Array& array_;
  const CompareSpec& spec_;
  const bool crops_;
  const std::uint64_t item_bytes_;
  const PageBuffer buffer_;
  std::vector<std::uint64_t> indices_;
  std::optional<Sequence> order_;
};

void read_blocks(const Array& array, const CompareSpec& spec, std::uint64_t rows, Tally& tally) {
  const BlockOptions blocks =
      choose_blocks({.row_bytes = array.row_bytes(), .budget = spec.budget});
  for (std::uint64_t epoch = 0;; ++epoch) {
    for (const Chunk& chunk : array.chunks(rows, block_shuffled(spec.seed, epoch, blocks))) {
      if (!tally.take(chunk.bytes())) return;
    }
  }
}

}  // namespace

void do_remote_work(const CompareSpec& spec, RemoteWay way,
                    const std::function<void(const RemoteWork&)>& finished) {
  ArrayOptions options = options_of(spec, uses_disk_cache(way));
  if (way == RemoteWay::kSingle) options.merge_gap = 0;
  const Array array = Array::open(spec.paths, options);
  refuse_too_small(spec, array);
  const std::uint64_t item_bytes =
      array.row_bytes() * (spec.pattern == Pattern::kCrops ? kCropElements : 1);
  const std::uint64_t fitting = std::max<std::uint64_t>(1, spec.budget / 8 / item_bytes);
  const std::uint64_t at_once = spec.chunk ? spec.chunk : std::min(kMostItemsAtOnce, fitting);
  Tally tally(kItemsInSlice, item_bytes, spec.seconds);
  tally.start();
  if (in_blocks(way)) {
    read_blocks(array, spec, at_once, tally);
  } else {
    ItemReader(array, spec, way == RemoteWay::kSingle ? 1 : at_once).run(tally);
  }
  RemoteWork result;
  tally.write(result.work);
  result.work.engine = array.engine();
  result.work.chunk = way == RemoteWay::kSingle ? 1 : at_once;
  result.work.slice_items = kItemsInSlice;
  const ArrayStats stats = array.stats();
  result.requests = stats.requests;
  result.network_bytes = stats.bytes_from_network;
  result.disk_cache_bytes = stats.bytes_from_disk_cache;
  result.retries = stats.retries;
  result.hedges = stats.hedges;
  finished(result);
}

namespace {

void run_way(const CompareSpec& spec, const std::string& of, WayOutcome& outcome) {
  WorkerProcess worker("compare-worker");
  const nlohmann::json order = {{"spec", spec}, {"way", way_name(outcome.way)}};
  worker.send(order.dump());
  const auto ready = nlohmann::json::parse(worker.line());
  if (ready.contains("error")) {
    outcome.error = ready.at("error").get<std::string>();
    return;
  }
  const CacheWatch no_files({});
  MemoryWatch watch(worker.pid(), no_files, ready.at("peak_reset").get<bool>());
  Progress progress;
  const auto started = std::chrono::steady_clock::now();
  worker.send("go");
  std::optional<std::string> answer;
  while (!(answer = worker.line(MemoryWatch::kInterval))) {
    watch.sample();
    if (!progress.due()) continue;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
    progress.show(fmt::format("{} {:<14} {}  {:.1f} of {:g} s", of, way_name(outcome.way),
                              bar(elapsed.count() / spec.seconds), elapsed.count(), spec.seconds));
  }
  watch.sample_all();
  outcome.growth = watch.growth();
  const auto result = nlohmann::json::parse(*answer);
  if (result.contains("error")) {
    outcome.error = result.at("error").get<std::string>();
  } else {
    outcome.done = result.get<RemoteWork>();
  }
}

void set_checksums(RemoteComparison& comparison, bool blocks) {
  std::vector<std::vector<Checkpoint>> runs;
  for (const WayOutcome& way : comparison.ways) {
    if (way.error.empty() && in_blocks(way.way) == blocks) {
      runs.push_back(way.done.work.checkpoints);
    }
  }
  const std::uint64_t slices = last_common(runs);
  for (WayOutcome& way : comparison.ways) {
    if (!way.error.empty() || in_blocks(way.way) != blocks) continue;
    way.checksum = checksum_at(way.done.work.checkpoints, slices).value_or(0);
    way.checksum_items = slices * way.done.work.slice_items;
  }
}

}  // namespace

RemoteComparison compare_remote(const CompareSpec& spec) {
  const InterruptGuard interrupts;
  RemoteComparison comparison;
  comparison.spec = spec;
  {  // Once here, so that a bad address is one error and not one for each way.
    const Array array = Array::open(spec.paths, options_of(spec, false));
    refuse_too_small(spec, array);
    comparison.array = describe(array);
  }
  const std::vector<RemoteWay> ways = ways_of(spec);
  for (std::size_t i = 0; i < ways.size(); ++i) {
    WayOutcome outcome;
    outcome.way = ways[i];
    try {
      run_way(spec, fmt::format("{} {}/{}", pattern_name(spec.pattern), i + 1, ways.size()),
              outcome);
    } catch (const Error& error) {
      outcome.error = error.what();
    }
    comparison.ways.push_back(std::move(outcome));
  }
  for (const bool blocks : {false, true}) set_checksums(comparison, blocks);
  return comparison;
}

nlohmann::ordered_json to_report(const RemoteComparison& comparison) {
  using Json = nlohmann::ordered_json;
  const CompareSpec& spec = comparison.spec;
  Json results = Json::array(), failures = Json::array(), files = Json::array();
  for (const std::string& path : spec.paths) files.push_back(without_query(path));
  for (const WayOutcome& way : comparison.ways) {
    if (!way.error.empty()) {
      failures.push_back({{"way", way_name(way.way)}, {"error", way.error}});
      continue;
    }
    const WorkerResult& work = way.done.work;
    results.push_back({{"way", way_name(way.way)},
                       {"items", work.items},
                       {"seconds", work.seconds},
                       {"items_per_s", way.per_second()},
                       {"wanted_bytes", work.wanted_bytes},
                       {"requests", way.done.requests},
                       {"bytes_from_network", way.done.network_bytes},
                       {"bytes_from_disk_cache", way.done.disk_cache_bytes},
                       {"retries", way.done.retries},
                       {"hedges", way.done.hedges},
                       {"rss_growth_peak_bytes", way.growth.rss},
                       {"memory_growth_peak_bytes", way.growth.anon},
                       {"within_budget", way.growth.within(spec.budget).value_or(false)},
                       {"checksum", fmt::format("{:016x}", way.checksum)},
                       {"checksum_items", way.checksum_items},
                       {"how", work.engine.how}});
  }
  return {{"file", files.front()},
          {"files", files},
          {"array", comparison.array},
          {"pattern", pattern_name(spec.pattern)},
          {"budget_bytes", spec.budget},
          {"cache", spec.disk_cache.empty() ? Json() : Json(spec.disk_cache)},
          {"seed", spec.seed},
          {"results", std::move(results)},
          {"failures", std::move(failures)}};
}

std::string to_table(const RemoteComparison& comparison) {
  const CompareSpec& spec = comparison.spec;
  const bool cached = !spec.disk_cache.empty();
  const std::string items = item_name(spec.pattern);
  const WayOutcome* single = comparison.find(RemoteWay::kSingle);
  std::vector<std::string> head = {"way",  items + "/s",    "× single",
                                   "MB/s", "requests/item", "fetched/wanted"};
  if (cached) head.push_back("from disk cache");
  for (const char* name : {"memory growth", "within budget"}) head.push_back(name);
  Table table(std::move(head));
  const auto ratio = [](double a, double b) { return b > 0 ? describe_ratio(a / b) : "unknown"; };
  for (const WayOutcome& way : comparison.ways) {
    if (!way.error.empty()) {
      table.add({way_name(way.way), "failed"});
      continue;
    }
    const double wanted = double(way.done.work.wanted_bytes);
    std::vector<std::string> row = {
        way_name(way.way),
        describe_rate(way.per_second()),
        ratio(way.per_second(), single ? single->per_second() : 0),
        describe_rate(way.done.work.seconds > 0 ? wanted / way.done.work.seconds / 1e6 : 0),
        ratio(double(way.done.requests), double(way.done.work.items)),
        ratio(double(way.done.network_bytes), wanted) + " ×"};
    if (cached) row.push_back(ratio(double(way.done.disk_cache_bytes), wanted) + " ×");
    row.push_back(format_size(way.growth.anon));
    row.push_back(way.growth.within(spec.budget).value_or(false) ? "yes" : "NO");
    table.add(std::move(row));
  }
  std::vector<std::string> shown;
  for (const std::string& path : spec.paths) shown.push_back(without_query(path));
  // The address does not come first: `say` would hide all that follows its query.
  return fmt::format("{}, budget {}, {:g} s each way, from\n{}: {}\n\n{}",
                     pattern_in_words(spec.pattern), format_size(spec.budget), spec.seconds,
                     describe_files(shown), comparison.array, table.text());
}

std::string to_words(const RemoteComparison& comparison) {
  const WayOutcome* single = comparison.find(RemoteWay::kSingle);
  const WayOutcome* parallel = comparison.find(RemoteWay::kParallel);
  const WayOutcome* blocks = comparison.find(RemoteWay::kBlocks);
  const std::string items = item_name(comparison.spec.pattern);
  std::string text;
  if (single && parallel && single->per_second() > 0) {
    text += wrapped(
        fmt::format("Many requests at a time (parallel) read {} × as many {} per second as one "
                    "request after the other (single).",
                    describe_ratio(parallel->per_second() / single->per_second()), items),
        0);
  }
  if (parallel && blocks && parallel->per_second() > 0) {
    text += wrapped(
        fmt::format("Order \"blocks\" reads {} × as many {} per second as parallel. Its order is "
                    "another one: rows are mixed within a window (docs/orders.md).",
                    describe_ratio(blocks->per_second() / parallel->per_second()), items),
        0);
  }
  const bool fetched = std::ranges::any_of(comparison.ways, [](const WayOutcome& way) {
    return way.error.empty() && uses_disk_cache(way.way) && way.done.network_bytes > 0;
  });
  if (fetched) {
    text += wrapped(
        "The cache on disk did not hold all of the data yet, and it fetches blocks of 256 KiB "
        "whole. Run this again, with more --seconds if needed, to see later epochs.",
        0);
  }
  if (comparison.same_bytes() && parallel && parallel->checksum_items > 0) {
    text += fmt::format("The same {} {} from every way of this order: checksum {:016x}.\n",
                        with_commas(parallel->checksum_items), items, parallel->checksum);
  }
  return text;
}

std::string complaint(const RemoteComparison& comparison) {
  std::string text;
  for (const WayOutcome& way : comparison.ways) {
    if (way.error.empty()) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", way_name(way.way), way.error);
  }
  if (comparison.same_bytes()) return text;
  if (!text.empty()) text += "\n";
  return text + "WRONG DATA: the checksums of the same rows differ\nhint: please report this";
}

}  // namespace evenkeel::cli
