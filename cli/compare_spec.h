// What `compare` does, and what one engine made of it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/checkpoints.h"
#include "cli/options.h"

namespace evenkeel::cli {

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
  std::uint64_t memory_limit = 0;  // of the process that reads, page cache included; 0: none
};

// One engine's part, as the worker tells it.
struct WorkerResult {
  EngineReport engine;
  std::uint64_t items = 0, wanted_bytes = 0, chunk = 0, slice_items = 0;
  std::optional<std::uint64_t> disk_bytes;
  double seconds = 0;
  std::vector<Checkpoint> checkpoints;
};

// For the way between the parent and its worker.
void to_json(nlohmann::json& json, const CompareSpec& spec);
void from_json(const nlohmann::json& json, CompareSpec& spec);
void to_json(nlohmann::json& json, const WorkerResult& result);
void from_json(const nlohmann::json& json, WorkerResult& result);

}  // namespace evenkeel::cli
