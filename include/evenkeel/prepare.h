// Making data sets: files far larger than memory, shuffled and checked under a budget.
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

// What an item is, of those that are shuffled.
enum class ItemUnit : std::uint8_t {
  kRows,       // of an array
  kLines,      // of text; the last one gets a newline where it has none
  kDocuments,  // of token files: by their index, or by a token between them
  kBlocks,     // a fixed number of tokens; the last block may be shorter
};
ItemUnit parse_item_unit(std::string_view name);  // "rows", "lines", "documents", "blocks"
std::string_view item_unit_name(ItemUnit unit);

// Files that are read, one after the other, as items.
struct ItemInput {
  std::vector<std::string> paths;
  ItemUnit unit = ItemUnit::kRows;
  // Of kRows and token files that do not say it themselves; see ArrayOptions.
  std::optional<DType> dtype = {};
  std::vector<std::int64_t> shape = {};
  std::uint64_t block_tokens = 0;                  // of kBlocks
  std::optional<std::int64_t> bos = {}, eos = {};  // of kDocuments; see DocumentOptions
};

// Where a long job stands.
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
  std::uint64_t duplicates = 0;          // of dedup: items that were left out
  std::string how;                       // in words
  std::vector<WorkOutput> outputs = {};  // of copy_items
};

struct ShuffleOptions {
  ItemInput input;
  std::string output;
  // The format of tokens: as TokenWriterOptions::format; empty: that of the first input.
  std::string format = {};
  std::uint64_t seed = 0;
  // All memory: buffers, items, and what is read ahead.
  Budget budget = {};
  // A folder for the scratch file, which is as large as the input. Empty: beside the output.
  std::string scratch = {};
  bool resume = false;     // goes on where an earlier run was killed
  bool checksums = false;  // see WriteOptions
  // Bytes after which a killed run can go on.
  std::uint64_t checkpoint_bytes = std::uint64_t{1} << 30;
  // Called now and then; what it throws ends the work, which can be resumed.
  std::function<void(const WorkProgress&)> progress = {};
  std::function<void()> while_waiting = {};  // see WriteOptions; it ends the work, too
};

// Writes the items of the input in random order: each of the n! orders is as likely as the others,
// by the seed. The same seed, items and format give the same bytes on every machine and with every
// budget. Item i has a key of 128 random bits (Philox of seed and i), and the output is sorted by
// key: the first pass distributes items to a scratch file by the key's first bits, the second reads
// and sorts part after part. Throws Error.
WorkReport shuffle(const ShuffleOptions& options);

struct DedupOptions {
  ItemInput input;
  std::string output;
  std::string format = {};  // of tokens; as ShuffleOptions::format
  Budget budget = {};
  // A folder for the scratch files: 24 bytes an item, and 8 a duplicate. Empty: beside the output.
  std::string scratch = {};
  bool resume = false, checksums = false;
  std::uint64_t checkpoint_bytes = std::uint64_t{1} << 30;
  std::function<void(const WorkProgress&)> progress = {};
  std::function<void()> while_waiting = {};  // see WriteOptions; it ends the work, too
};

// Writes each item of the input once, where it occurs first, in the order of the input. Items are
// the same if their 128-bit XXH3 hashes are: of a billion different items, two have the same hash
// with a probability of 10^-21. The output does not depend on the budget. Three steps: hashes go to
// parts of a scratch file, each part is searched for those that occur again, and the input is read
// once more and copied without them. Throws Error.
WorkReport dedup(const DedupOptions& options);

// Files that are mixed with others.
struct WeightedFiles {
  std::vector<std::string> paths;
  double weight = 1;
};

struct CopyOptions {
  ItemInput input;
  // Mixed by weights: items are taken from these sets of files in turn, so that at every place each
  // set has had its share of the items to within one. It ends where the first set runs out; with
  // `repeat`, sets that run out begin again until each was used up once. Empty: the files of
  // `input`, one after the other. Otherwise `input.paths` is not used.
  std::vector<WeightedFiles> sets = {};
  bool repeat = false;
  // With several shares a pattern: "part_{}.npy" becomes part_00000.npy, part_00001.npy, ...
  std::string output;
  std::string format = {};        // of tokens; as ShuffleOptions::format
  std::string array_format = {};  // of rows: "npy" or "raw"; empty: as the input
  // Elements are converted, checked for range. Default: as they are.
  std::optional<DType> dtype = {};
  // Parts of these relative sizes, in bytes, one after the other; items stay whole. Empty: one.
  std::vector<double> shares = {};
  // So many items, each set of them equally likely by the seed, in the order of the input. Of rows
  // and blocks, those that are not taken are not read.
  std::optional<std::uint64_t> sample = {};
  std::uint64_t seed = 0;
  Budget budget = {};
  bool resume = false, checksums = false;
  std::uint64_t checkpoint_bytes = std::uint64_t{1} << 30;
  std::function<void(const WorkProgress&)> progress = {};
  std::function<void()> while_waiting = {};  // see WriteOptions; it ends the work, too
};

// Copies the items of all inputs, in order: converted, merged, split or sampled. Throws Error; an
// element that does not fit the new type is named.
WorkReport copy_items(const CopyOptions& options);

struct VerifyOptions {
  Budget budget = {};
  std::function<void(const WorkProgress&)> progress = {};
};
struct BadRange {
  std::uint64_t begin = 0, end = 0;  // bytes
};
struct VerifyReport {
  std::uint64_t bytes = 0, blocks = 0;
  std::uint64_t bad_blocks = 0;
  std::optional<BadRange> first_bad = {};  // blocks that are bad in a row
  std::string problem = {};                // in words; empty when all is well
};
// Reads a file and compares it with FILE.xxh3. Throws Error when it cannot be read.
VerifyReport verify(const std::string& path, const VerifyOptions& options = {});
// Makes FILE.xxh3 of a file as it is.
VerifyReport write_checksums(const std::string& path, const VerifyOptions& options = {});

}  // namespace evenkeel

#pragma GCC visibility pop
