// Preparing datasets: shuffles, copies and checks files far larger than memory within a budget.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/budget.h"
#include "evenkeel/compiler.h"
#include "evenkeel/dtype.h"
#include "evenkeel/error.h"

#pragma GCC visibility push(default)

namespace evenkeel {

// The unit that is shuffled, copied or compared.
enum class ItemUnit : std::uint8_t {
  kRows,       // of an array
  kLines,      // of text; the last one gets a newline if it has none
  kDocuments,  // of token files: from their index, or separated by a token
  kBlocks,     // a fixed number of tokens; the last block may be shorter
};
ItemUnit parse_item_unit(std::string_view name);  // "rows", "lines", "documents", "blocks"
std::string_view item_unit_name(ItemUnit unit);

// Files whose items are read one after the other.
struct ItemInput {
  std::vector<std::string> paths;
  ItemUnit unit = ItemUnit::kRows;
  // For kRows and for token files that do not name their dtype; see ArrayOptions.
  std::optional<DType> dtype = {};
  std::vector<std::int64_t> shape = {};
  std::uint64_t block_tokens = 0;                  // for kBlocks
  std::optional<std::int64_t> bos = {}, eos = {};  // for kDocuments; see DocumentOptions
};

// The progress of a long job.
struct WorkProgress {
  std::string_view step;              // "distributing", "writing"
  std::uint64_t done = 0, total = 0;  // bytes of all steps
};

struct WorkOutput {
  std::string path;
  std::uint64_t items = 0;
};
struct WorkReport {
  std::uint64_t items = 0, bytes = 0;  // of the output; bytes as they were read
  bool resumed = false;
  std::uint64_t duplicates = 0;          // for dedup: items that were left out
  std::string how;                       // a description of the method
  std::vector<WorkOutput> outputs = {};  // for copy_items
};

struct ShuffleOptions {
  ItemInput input;
  std::string output;
  // The format of tokens: as TokenWriterOptions::format; empty: that of the first input.
  std::string format = {};
  std::uint64_t seed = 0;
  // Covers all memory: buffers, items, and what is read ahead.
  Budget budget = {};
  // A folder for the scratch file, which is as large as the input. Empty: beside the output.
  std::string scratch = {};
  bool resume = false;     // continues from the last checkpoint of a run that was killed
  bool checksums = false;  // see WriteOptions
  // Bytes between two checkpoints, from which a killed run can continue.
  std::uint64_t checkpoint_bytes = std::uint64_t{1} << 30;
  // Called regularly. An exception from it ends the work, which can be resumed.
  std::function<void(const WorkProgress&)> progress = {};
  std::function<void()> while_waiting = {};  // see WriteOptions; it ends the work, too
};

// Writes the items of the input in random order. All n! orders are equally likely; the seed selects
// one. The same seed, items and format give the same bytes on every machine and with every budget.
// Item i has a key of 128 random bits (Philox of seed and i), and the output is sorted by key: the
// first pass distributes items to parts of a scratch file by the first bits of the key, and the
// second reads and sorts one part after the other. Throws Error.
WorkReport shuffle(const ShuffleOptions& options);

struct DedupOptions {
  ItemInput input;
  std::string output;
  std::string format = {};  // of tokens; as ShuffleOptions::format
  Budget budget = {};
  // A folder for the scratch files: 24 bytes per item and 8 per duplicate. Empty: beside the
  // output.
  std::string scratch = {};
  bool resume = false, checksums = false;
  std::uint64_t checkpoint_bytes = std::uint64_t{1} << 30;
  std::function<void(const WorkProgress&)> progress = {};
  std::function<void()> while_waiting = {};  // see WriteOptions; it ends the work, too
};

// Writes each item of the input once, where it occurs first, in the order of the input. Items are
// the same if their 128-bit XXH3 hashes are: the probability that two of a billion different items
// have the same hash is 10^-21. The output does not depend on the budget. There are three steps:
// hashes are distributed to parts of a scratch file, each part is searched for duplicates, and the
// input is read again and copied without them. Throws Error.
WorkReport dedup(const DedupOptions& options);

// Files that are mixed with others.
struct WeightedFiles {
  std::vector<std::string> paths;
  double weight = 1;
};

struct CopyOptions {
  ItemInput input;
  // Sets of files to mix by weight. Items are taken alternately, so that at every position each set
  // has its share of the items to within one. The output ends when the first set runs out. With
  // `repeat`, sets that run out start again until each was read completely once. If this is empty,
  // the files of `input` are copied one after the other; otherwise `input.paths` is not used.
  std::vector<WeightedFiles> sets = {};
  bool repeat = false;
  // With several shares, a pattern: "part_{}.npy" becomes part_00000.npy, part_00001.npy, ...
  std::string output;
  std::string format = {};        // of tokens; as ShuffleOptions::format
  std::string array_format = {};  // of rows: "npy" or "raw"; empty: as the input
  // Converts elements to this type and checks their range. Default: no conversion.
  std::optional<DType> dtype = {};
  // Splits the output into parts of these relative sizes in bytes. Items stay whole. Empty: one
  // part.
  std::vector<double> shares = {};
  // Copies a random sample of this many items, in the order of the input. All subsets of that size
  // are equally likely; the seed selects one. Rows and blocks that are not in the sample are not
  // read.
  std::optional<std::uint64_t> sample = {};
  std::uint64_t seed = 0;
  Budget budget = {};
  bool resume = false, checksums = false;
  std::uint64_t checkpoint_bytes = std::uint64_t{1} << 30;
  std::function<void(const WorkProgress&)> progress = {};
  std::function<void()> while_waiting = {};  // see WriteOptions; it ends the work, too
};

// Converts, merges, splits or samples: copies the items of all inputs in order. Throws Error; the
// message names an element that does not fit the new type.
WorkReport copy_items(const CopyOptions& options);

struct VerifyOptions {
  Budget budget = {};
  // Called regularly. An exception from it ends the work.
  std::function<void(const WorkProgress&)> progress = {};
};
struct BadRange {
  std::uint64_t begin = 0, end = 0;  // bytes
};
struct VerifyReport {
  std::uint64_t bytes = 0, blocks = 0;
  std::uint64_t bad_blocks = 0;
  std::optional<BadRange> first_bad = {};  // the first run of bad blocks
  std::string problem = {};                // in words; empty if the file is intact
};
// Reads a file and compares it with FILE.xxh3. Throws Error if it cannot be read.
VerifyReport verify(const std::string& path, const VerifyOptions& options = {});
// Writes FILE.xxh3 for a file as it is now.
VerifyReport write_checksums(const std::string& path, const VerifyOptions& options = {});

}  // namespace evenkeel

#pragma GCC visibility pop
