// A shuffle in parts that different machines can do. Python's evenkeel.plan_shuffle cuts the work.
//
// Parts of the first step distribute a range of items to a scratch file each, which has all
// buckets. Parts of the second step take a range of buckets from all of these files, sort them and
// write them. What these wrote, one behind the other, is what `shuffle` writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evenkeel/prepare.h"
#include "prepare/items.h"

namespace evenkeel {

// What is to be known about the input before the work is cut.
struct ShufflePlan {
  std::vector<std::string> files;  // that are read: also indexes
  std::uint64_t bytes = 0;
  std::uint64_t items = 0;    // an estimate of lines, else exact
  std::uint64_t buckets = 0;  // for the budget
  // What parts are written as, and how they are read to be joined.
  std::string ending;        // of their names
  ItemInput joined;          // without paths
  std::string token_format;  // empty: these are no tokens
};
// At least one bucket a part. Throws Error.
ShufflePlan plan_shuffle(const ShuffleOptions& options, std::uint64_t parts);

// Items that follow one another.
struct ItemRange {
  ItemPosition begin;
  std::uint64_t items = 0;
};
// The lines that begin within these bytes of all files. The number of the first is not known: 0.
ItemRange count_lines(const ShuffleOptions& options, std::uint64_t begin, std::uint64_t end);

// In these, `options.output` is the file that the part writes, and `kind` says which part of which
// work it is: unfinished work of another kind is dropped. Parts always go on where they were.
//
// Writes OUTPUT.partial and OUTPUT.partial.state. The range's offset is only used for lines.
WorkReport distribute_part(const ShuffleOptions& options, const std::string& kind,
                           const ItemRange& range, std::uint64_t buckets);
// `scratch` has what parts of `distribute_part` wrote.
WorkReport write_part(const ShuffleOptions& options, const std::string& kind,
                      const std::vector<std::string>& scratch, std::uint64_t first_bucket,
                      std::uint64_t end_bucket);

}  // namespace evenkeel
