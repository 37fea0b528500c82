// `evenkeel compare` for objects on servers: the same items, read in several ways.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/compare_work.h"
#include "cli/memory_watch.h"

namespace evenkeel::cli {

enum class RemoteWay {
  kSingle,          // one item per request, one request after the other
  kParallel,        // the same items in the same order, many requests in flight
  kBlocks,          // rows in order "blocks"
  kParallelCached,  // as kParallel, with a cache on disk
  kBlocksCached,    // as kBlocks, with a cache on disk
};
std::string way_name(RemoteWay way);
RemoteWay parse_way(const std::string& name);  // throws Error (kInvalid)
bool in_blocks(RemoteWay way);
bool uses_disk_cache(RemoteWay way);
// Which of them a spec asks for.
std::vector<RemoteWay> ways_of(const CompareSpec& spec);

// What the worker reports.
struct RemoteWork {
  WorkerResult work;
  std::uint64_t requests = 0, network_bytes = 0, disk_cache_bytes = 0, retries = 0, hedges = 0;
};
void to_json(nlohmann::json& json, const RemoteWork& work);
void from_json(const nlohmann::json& json, RemoteWork& work);

struct WayOutcome {
  RemoteWay way = RemoteWay::kSingle;
  std::string error;  // empty: it worked, and the rest is set
  RemoteWork done;
  Growth growth;
  std::uint64_t checksum = 0, checksum_items = 0;  // where all ways of the same order have passed
  double per_second() const;
};

struct RemoteComparison {
  CompareSpec spec;
  std::string array;
  std::vector<WayOutcome> ways;

  const WayOutcome* find(RemoteWay way) const;  // if it ran and worked
  // Ways of the same order have read the same bytes, as far as they got.
  bool same_bytes() const;
  bool good() const;  // all worked, and same_bytes()
};

// The pattern that fits an array: rows if it has several axes, otherwise crops.
Pattern remote_pattern(const CompareSpec& spec);

// Opens the array and reads it in this way; `finished` is called while it is still open. Throws
// Error.
void do_remote_work(const CompareSpec& spec, RemoteWay way,
                    const std::function<void(const RemoteWork&)>& finished);

// Runs one way after the other, each in a process of its own. Throws Error when the array cannot be
// opened at all, and Interrupted.
RemoteComparison compare_remote(const CompareSpec& spec);

nlohmann::ordered_json to_report(const RemoteComparison& comparison);
std::string to_table(const RemoteComparison& comparison);
std::string to_words(const RemoteComparison& comparison);
std::string complaint(const RemoteComparison& comparison);  // for stderr; empty: nothing is wrong

}  // namespace evenkeel::cli
