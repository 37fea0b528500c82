#include "cli/compare_work.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <new>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/memory.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "evenkeel/meter.h"

namespace evenkeel::cli {
namespace {

constexpr std::uint64_t kDense = 1024;

}  // namespace

bool is_checkpoint(std::uint64_t slices) {
  const std::uint64_t stride = std::max<std::uint64_t>(1, std::bit_floor(slices) / kDense);
  return slices > 0 && slices % stride == 0;
}

SliceChecksum::SliceChecksum(std::uint64_t slice_bytes) : slice_bytes_(slice_bytes) {
  checkpoints_.reserve(16 * kDense);  // so that it does not grow while memory is measured
}

void SliceChecksum::take(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t count = std::min<std::uint64_t>(bytes.size(), slice_bytes_ - filled_);
    if (count == slice_bytes_) {
      finish(xxh3(bytes.first(count), chain_));
    } else {
      if (filled_ == 0) hash_.reset(chain_);
      hash_.append(bytes.first(count));
      filled_ += count;
      if (filled_ == slice_bytes_) finish(hash_.hash());
    }
    bytes = bytes.subspan(count);
  }
}

void SliceChecksum::finish(std::uint64_t checksum) {
  chain_ = checksum;
  filled_ = 0;
  if (is_checkpoint(++slices_)) checkpoints_.push_back({slices_, chain_});
}

std::uint64_t last_common(const std::vector<std::vector<Checkpoint>>& runs) {
  // All runs keep the same checkpoints, so all have the last one of the shortest run.
  std::uint64_t last = UINT64_MAX;
  for (const auto& run : runs) last = std::min(last, run.empty() ? 0 : run.back().slices);
  return runs.empty() ? 0 : last;
}

std::optional<std::uint64_t> checksum_at(const std::vector<Checkpoint>& run, std::uint64_t slices) {
  const auto at = std::lower_bound(
      run.begin(), run.end(), slices,
      [](const Checkpoint& point, std::uint64_t count) { return point.slices < count; });
  if (at == run.end() || at->slices != slices) return std::nullopt;
  return at->checksum;
}

namespace {

template <class T>
nlohmann::json value_or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

std::optional<std::uint64_t> maybe_bytes(const nlohmann::json& json) {
  if (json.is_null()) return std::nullopt;
  return json.get<std::uint64_t>();
}

// JSON is UTF-8, but names of files and arrays may contain any bytes: non-ASCII bytes are written
// as %NN.
std::string escaped(const std::string& path) {
  std::string text;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 128 && c != '%' ? std::string(1, c) : fmt::format("%{:02x}", byte);
  }
  return text;
}

std::string unescaped(const std::string& text) {
  std::string path;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size();
    path += escape ? static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16)) : text[i];
    if (escape) i += 2;
  }
  return path;
}

}  // namespace

Pattern parse_pattern(const std::string& name) {
  if (name == "crops") return Pattern::kCrops;
  if (name == "rows") return Pattern::kRows;
  if (name == "scan") return Pattern::kScan;
  throw Error(ErrorKind::kInvalid, "pattern", fmt::format("\"{}\" is not a pattern", name))
      .hint("crops (1,024 elements at random places), rows (shuffled rows) or scan (in order)");
}

std::string pattern_name(Pattern pattern) {
  switch (pattern) {
    case Pattern::kCrops:
      return "crops";
    case Pattern::kRows:
      return "rows";
    case Pattern::kScan:
      return "scan";
  }
  return "";
}

std::string item_name(Pattern pattern) { return pattern == Pattern::kCrops ? "crops" : "rows"; }

void to_json(nlohmann::json& json, const CompareSpec& spec) {
  nlohmann::json paths = nlohmann::json::array();
  for (const std::string& path : spec.paths) paths.push_back(escaped(path));
  json = {{"paths", std::move(paths)},
          {"dtype", spec.raw.dtype},
          {"shape", spec.raw.shape},
          {"offset", spec.raw.offset},
          {"big_endian", spec.raw.big_endian},
          {"name", escaped(spec.raw.name)},
          {"pattern", pattern_name(spec.pattern)},
          {"budget", spec.budget},
          {"seconds", spec.seconds},
          {"chunk", spec.chunk},
          {"merge_gap", value_or_null(spec.merge_gap)},
          {"disk_cache", escaped(spec.disk_cache)},
          {"seed", spec.seed}};
}

void from_json(const nlohmann::json& json, CompareSpec& spec) {
  for (const auto& path : json.at("paths"))
    spec.paths.push_back(unescaped(path.get<std::string>()));
  json.at("dtype").get_to(spec.raw.dtype);
  json.at("shape").get_to(spec.raw.shape);
  json.at("offset").get_to(spec.raw.offset);
  json.at("big_endian").get_to(spec.raw.big_endian);
  spec.raw.name = unescaped(json.at("name").get<std::string>());
  spec.pattern = parse_pattern(json.at("pattern").get<std::string>());
  json.at("budget").get_to(spec.budget);
  json.at("seconds").get_to(spec.seconds);
  json.at("chunk").get_to(spec.chunk);
  spec.merge_gap = maybe_bytes(json.at("merge_gap"));
  spec.disk_cache = unescaped(json.at("disk_cache").get<std::string>());
  json.at("seed").get_to(spec.seed);
}

void to_json(nlohmann::json& json, const WorkerResult& result) {
  nlohmann::json points = nlohmann::json::array();
  for (const Checkpoint& point : result.checkpoints) {
    points.push_back({point.slices, point.checksum});
  }
  json = {{"asked", engine_name(result.engine.asked)},
          {"chosen", engine_name(result.engine.chosen)},
          {"how", result.engine.how},
          {"why", result.engine.why},
          {"items", result.items},
          {"wanted_bytes", result.wanted_bytes},
          {"disk_bytes", value_or_null(result.disk_bytes)},
          {"chunk", result.chunk},
          {"slice_items", result.slice_items},
          {"seconds", result.seconds},
          {"checkpoints", std::move(points)}};
}

void from_json(const nlohmann::json& json, WorkerResult& result) {
  result.engine.asked = parse_engine(json.at("asked").get<std::string>());
  result.engine.chosen = parse_engine(json.at("chosen").get<std::string>());
  json.at("how").get_to(result.engine.how);
  json.at("why").get_to(result.engine.why);
  json.at("items").get_to(result.items);
  json.at("wanted_bytes").get_to(result.wanted_bytes);
  result.disk_bytes = maybe_bytes(json.at("disk_bytes"));
  json.at("chunk").get_to(result.chunk);
  json.at("slice_items").get_to(result.slice_items);
  json.at("seconds").get_to(result.seconds);
  for (const auto& point : json.at("checkpoints")) {
    result.checkpoints.push_back(
        {point.at(0).get<std::uint64_t>(), point.at(1).get<std::uint64_t>()});
  }
}

Tally::Tally(std::uint64_t slice_items, std::uint64_t item_bytes, double seconds)
    : checksum_(slice_items * item_bytes), item_bytes_(item_bytes), seconds_(seconds) {}

void Tally::start() { started_ = std::chrono::steady_clock::now(); }

bool Tally::take(std::span<const std::byte> bytes) {
  checksum_.take(bytes);
  items_ += bytes.size() / item_bytes_;
  elapsed_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  return elapsed_ < seconds_ || checksum_.slices() == 0;
}

void Tally::write(WorkerResult& result) const {
  result.items = items_;
  result.wanted_bytes = items_ * item_bytes_;
  result.seconds = elapsed_;
  result.checkpoints = checksum_.checkpoints();
}

namespace {

constexpr std::uint64_t kCropsInBatch = 1024, kCropsInSlice = 64;
constexpr std::uint64_t kRowsInChunk = 50'000, kRowsInSlice = 500;
constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 62;  // more than any budget
constexpr std::uint64_t kScanBytes = 4_MiB, kScanSliceBytes = 1_MiB;

void crops(const Array& array, std::uint64_t seed, std::uint64_t batch, Tally& tally) {
  const std::uint64_t places = array.rows() - kCropElements + 1;
  const std::uint64_t bytes =
      checked_mul(batch, kCropElements * array.row_bytes()).value_or(kUnlimited);
  const PageBuffer buffer(array.budget(), bytes, "crops of one batch");
  const std::span<std::byte> out(buffer.data(), bytes);
  std::vector<std::uint64_t> starts(batch);
  tally.start();
  std::uint64_t drawn = 0;
  do {
    for (std::uint64_t& start : starts) start = uniform_draw(seed, 0, drawn++, places);
    array.crops(starts, kCropElements, out);
  } while (tally.take(out));
}

void chunks(const Array& array, const CompareSpec& spec, std::uint64_t rows, Tally& tally) {
  tally.start();
  for (std::uint64_t epoch = 0;; ++epoch) {
    const Order order = spec.pattern == Pattern::kScan ? sequential() : shuffled(spec.seed, epoch);
    for (const Chunk& chunk : array.chunks(rows, order)) {
      if (!tally.take(chunk.bytes())) return;
    }
  }
}

// The same rows in the same order, a slice at a time: for `map`, which can take minutes for a chunk
// when memory is short.
void row_slices(const Array& array, std::uint64_t seed, std::uint64_t slice, Tally& tally) {
  const PageBuffer buffer(array.budget(), slice * array.row_bytes(), "rows of one slice");
  std::vector<std::uint64_t> indices(slice);
  tally.start();
  for (std::uint64_t epoch = 0;; ++epoch) {
    const Sequence order(shuffled(seed, epoch), array.rows());
    for (std::uint64_t at = 0; at < order.size(); at += slice) {
      const std::span<std::uint64_t> now(indices.data(), std::min(slice, order.size() - at));
      const std::span<std::byte> out(buffer.data(), now.size() * array.row_bytes());
      order.fill(at, now);
      array.gather(now, out);
      if (!tally.take(out)) return;
    }
  }
}

}  // namespace

WorkSizes work_sizes(const CompareSpec& spec, std::uint64_t rows, std::uint64_t row_bytes) {
  const auto fitting = [&](std::uint64_t share, std::uint64_t item_bytes) {
    return std::max<std::uint64_t>(1, spec.budget / share / item_bytes);
  };
  WorkSizes sizes;
  if (spec.pattern == Pattern::kCrops) {
    const std::uint64_t share = spec.budget >= 2_MiB ? 4 : 8;
    const std::uint64_t most = std::bit_floor(fitting(share, kCropElements * row_bytes));
    sizes.chunk = spec.chunk ? spec.chunk : std::min(kCropsInBatch, most);
    sizes.slice_items = std::min(kCropsInSlice, sizes.chunk);
  } else if (spec.pattern == Pattern::kRows) {
    // The engines' own buffers take most of a small budget.
    const std::uint64_t share = spec.budget >= 8_MiB ? 2 : spec.budget >= 2_MiB ? 8 : 16;
    sizes.chunk = spec.chunk ? spec.chunk : std::min(kRowsInChunk, fitting(share, row_bytes));
    sizes.slice_items = std::min(kRowsInSlice, fitting(4, row_bytes));
  } else {
    const std::uint64_t most = std::min(kScanBytes, spec.budget / 8);
    sizes.chunk = spec.chunk ? spec.chunk : std::max<std::uint64_t>(1, most / row_bytes);
    sizes.slice_items = std::max<std::uint64_t>(1, kScanSliceBytes / row_bytes);
  }
  if (spec.pattern != Pattern::kCrops) {
    sizes.chunk = std::min(sizes.chunk, rows);
    sizes.slice_items = std::min(sizes.slice_items, rows);
  }
  return sizes;
}

void refuse_too_small(const CompareSpec& spec, const Array& array) {
  const bool crops = spec.pattern == Pattern::kCrops;
  const std::uint64_t has = crops ? array.bytes() / array.dtype().size : array.rows();
  const std::uint64_t needed = crops ? kCropElements : 1;
  if (has >= needed) return;
  throw Error(
      ErrorKind::kInvalid, "compare",
      fmt::format("the array has {} {}, the pattern {} needs at least {}", with_commas(has),
                  crops ? "elements" : "rows", pattern_name(spec.pattern), with_commas(needed)))
      .in(spec.paths.front());
}

void do_work(const CompareSpec& spec, EngineKind engine,
             const std::function<void(const WorkerResult&)>& finished) {
  ArrayOptions options;
  spec.raw.apply(options);
  options.budget = spec.budget;
  options.engine = engine;
  options.flatten = spec.pattern == Pattern::kCrops;
  options.merge_gap = spec.merge_gap;

  const auto disk_before = disk_bytes_read();
  const Array array = Array::open(spec.paths, options);
  refuse_too_small(spec, array);
  const WorkSizes sizes = work_sizes(spec, array.rows(), array.row_bytes());
  const std::uint64_t item_bytes =
      array.row_bytes() * (spec.pattern == Pattern::kCrops ? kCropElements : 1);
  Tally tally(sizes.slice_items, item_bytes, spec.seconds);
  // Also if auto chose map: the same engine does the same work in the same way.
  const bool slowly = array.engine().chosen == EngineKind::kMap;
  if (spec.pattern == Pattern::kCrops) {
    crops(array, spec.seed, slowly ? sizes.slice_items : sizes.chunk, tally);
  } else if (spec.pattern == Pattern::kRows && slowly) {
    row_slices(array, spec.seed, sizes.slice_items, tally);
  } else {
    chunks(array, spec, sizes.chunk, tally);
  }

  WorkerResult result;
  tally.write(result);
  const auto disk_after = disk_bytes_read();
  if (disk_before && disk_after) result.disk_bytes = *disk_after - *disk_before;
  result.engine = array.engine();
  result.chunk = sizes.chunk;
  result.slice_items = sizes.slice_items;
  finished(result);
}

}  // namespace evenkeel::cli
