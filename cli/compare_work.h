// The work that `compare` does with each engine, its checksums, and the result.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "cli/options.h"

namespace evenkeel::cli {

struct Checkpoint {
  std::uint64_t slices = 0;  // slices taken so far
  std::uint64_t checksum = 0;
  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

// Whether a checkpoint is kept after this number of slices: after every one up to 2,048, every
// second up to 4,096, every fourth up to 8,192, and so on. That is 1,024 for each doubling, so long
// runs take little memory, and the last checkpoint that two runs share is within 0.1 % of the end
// of the shorter run.
bool is_checkpoint(std::uint64_t slices);

// XXH3 over slices of a fixed number of bytes, each seeded by the one before. How the stream is cut
// into `take` calls makes no difference.
class SliceChecksum {
 public:
  explicit SliceChecksum(std::uint64_t slice_bytes);
  void take(std::span<const std::byte> bytes);
  std::uint64_t slices() const { return slices_; }
  const std::vector<Checkpoint>& checkpoints() const { return checkpoints_; }

 private:
  void finish(std::uint64_t checksum);

  const std::uint64_t slice_bytes_;
  std::uint64_t filled_ = 0, chain_ = 0, slices_ = 0;
  RunningXxh3 hash_;  // of a slice that is not complete
  std::vector<Checkpoint> checkpoints_;
};

// The number of slices at the last checkpoint that all runs have; 0 if there is none.
std::uint64_t last_common(const std::vector<std::vector<Checkpoint>>& runs);
std::optional<std::uint64_t> checksum_at(const std::vector<Checkpoint>& run, std::uint64_t slices);

enum class Pattern { kCrops, kRows, kScan };
Pattern parse_pattern(const std::string& name);
std::string pattern_name(Pattern pattern);
std::string item_name(Pattern pattern);  // "crops", "rows"

// The work, the same for every engine.
struct CompareSpec {
  std::vector<std::string> paths;
  RawOptions raw;
  Pattern pattern = Pattern::kCrops;
  std::uint64_t budget = 64 << 20;
  double seconds = 3;
  std::uint64_t chunk = 0;  // rows or crops read at a time; 0: as fits the pattern and the budget
  std::optional<std::uint64_t> merge_gap;
  std::uint64_t seed = 1;
  std::string disk_cache = {};     // for URLs: FOLDER:SIZE; empty: none
  std::uint64_t memory_limit = 0;  // of the process that reads, page cache included; 0: none
};

// The result of one engine, as the worker reports it.
struct WorkerResult {
  EngineReport engine;
  std::uint64_t items = 0, wanted_bytes = 0, chunk = 0, slice_items = 0;
  std::optional<std::uint64_t> disk_bytes;
  double seconds = 0;
  std::vector<Checkpoint> checkpoints;
};

// Counts what was done and says when to stop.
class Tally {
 public:
  Tally(std::uint64_t slice_items, std::uint64_t item_bytes, double seconds);
  void start();
  // Takes whole items. False: time is up, and there is at least one checkpoint.
  bool take(std::span<const std::byte> bytes);
  void write(WorkerResult& result) const;

 private:
  SliceChecksum checksum_;
  const std::uint64_t item_bytes_;
  const double seconds_;
  std::uint64_t items_ = 0;
  double elapsed_ = 0;
  std::chrono::steady_clock::time_point started_;
};

// For the messages between the parent and its worker.
void to_json(nlohmann::json& json, const CompareSpec& spec);
void from_json(const nlohmann::json& json, CompareSpec& spec);
void to_json(nlohmann::json& json, const WorkerResult& result);
void from_json(const nlohmann::json& json, WorkerResult& result);

inline constexpr std::uint64_t kCropElements = 1024;

// How much is read at a time, and how often a checksum is taken. Depends only on the array and the
// spec, so all engines have the same checkpoints.
struct WorkSizes {
  std::uint64_t chunk = 0;        // crops per batch, or rows per chunk
  std::uint64_t slice_items = 0;  // crops or rows
};
WorkSizes work_sizes(const CompareSpec& spec, std::uint64_t rows, std::uint64_t row_bytes);

// Throws Error (kInvalid) if the array is too small for the pattern.
void refuse_too_small(const CompareSpec& spec, const Array& array);

// Opens the array with this engine and does the work. Calls `finished` with the result while the
// array is still open. Throws Error.
void do_work(const CompareSpec& spec, EngineKind engine,
             const std::function<void(const WorkerResult&)>& finished);

}  // namespace evenkeel::cli
