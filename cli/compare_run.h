// Runs the work with one engine after the other and puts the results together.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/compare_work.h"
#include "cli/memory_watch.h"

namespace evenkeel::cli {

enum class CacheState { kAsIs, kCold, kWarm };  // of the files, before each engine

struct EngineOutcome {
  EngineKind engine = EngineKind::kAuto;
  std::string error;  // empty: it worked, and the rest is set
  WorkerResult work;
  Growth growth;
  std::vector<ProfileSample> samples;  // of growth
  std::string started;                 // in UTC
  double watching_cpu_seconds = 0;
  double per_second() const { return work.seconds > 0 ? double(work.items) / work.seconds : 0; }
};

struct CompareOutcome {
  CompareSpec spec;
  CacheState cache = CacheState::kAsIs;
  std::string array;               // "3,000,000 × 162 float32, 1.81 GiB"
  std::uint64_t data_bytes = 0;    // of the array
  std::uint64_t memory_bytes = 0;  // that the page cache can use: free memory, or the limit
  std::optional<std::uint64_t> readahead;
  std::vector<EngineOutcome> engines;

  // The checksum over the items that all engines have read.
  std::uint64_t checksum = 0, checksum_items = 0;
  std::vector<EngineKind> differing;  // engines that read other data than most

  // How many times the engine read as many bytes as the data has.
  double passes(const EngineOutcome& engine) const;
  bool fits_memory() const { return data_bytes <= memory_bytes; }
  const EngineOutcome* find(EngineKind kind) const;  // if it ran and worked
  bool good() const;                                 // all worked, and none differs
};

// Finds the last checkpoint that all engines reached, and sets `checksum`, `checksum_items` and
// `differing`.
void compare_checksums(CompareOutcome& outcome);

// Throws Error if the array cannot be opened, and Interrupted. An error of one engine is in its
// outcome.
CompareOutcome run_compare(const CompareSpec& spec, const std::vector<EngineKind>& engines,
                           CacheState cache);

}  // namespace evenkeel::cli
