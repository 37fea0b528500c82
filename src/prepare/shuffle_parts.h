// A shuffle in parts that can run on different machines. Python's evenkeel.plan_shuffle divides the
// work.
//
// Each part of the first step distributes a range of items to its own scratch file, which has all
// buckets. Each part of the second step takes a range of buckets from all these files, sorts them
// and writes them. The concatenated outputs are what `shuffle` writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evenkeel/prepare.h"
#include "prepare/items.h"

namespace evenkeel {

// What must be known about the input before the work is divided.
struct ShufflePlan {
  std::vector<std::string> files;  // all files that are read, including indexes
  std::uint64_t bytes = 0;
  std::uint64_t items = 0;    // estimated for lines, otherwise exact
  std::uint64_t buckets = 0;  // for the budget
  // How parts are written, and how they are read to join them.
  std::string ending;        // of their names
  ItemInput joined;          // without paths
  std::string token_format;  // empty if these are not tokens
};
// Plans at least one bucket per part. Throws Error.
ShufflePlan plan_shuffle(const ShuffleOptions& options, std::uint64_t parts);

// Consecutive items.
struct ItemRange {
  ItemPosition begin;
  std::uint64_t items = 0;
};
// The lines that begin within these bytes of all files. The number of the first line is unknown and
// set to 0.
ItemRange count_lines(const ShuffleOptions& options, std::uint64_t begin, std::uint64_t end);

// In the next two, `options.output` is the file that the part writes, and `kind` identifies the
// work and its part: unfinished work of another kind is dropped. Parts always resume.
//
// Writes OUTPUT.partial and OUTPUT.partial.state. The offset of the range is used only for lines.
WorkReport distribute_part(const ShuffleOptions& options, const std::string& kind,
                           const ItemRange& range, std::uint64_t buckets);
// `scratch` lists the outputs of `distribute_part`.
WorkReport write_part(const ShuffleOptions& options, const std::string& kind,
                      const std::vector<std::string>& scratch, std::uint64_t first_bucket,
                      std::uint64_t end_bucket);

}  // namespace evenkeel
