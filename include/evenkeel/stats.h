// What is in files far larger than memory: figures of columns, tokens, documents and lines.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/budget.h"
#include "evenkeel/compiler.h"
#include "evenkeel/prepare.h"

#pragma GCC visibility push(default)

namespace evenkeel {

struct StatsOptions {
  // kRows: columns of the rows. kDocuments and kBlocks: tokens. kLines: lengths of lines.
  ItemInput input;
  Budget budget = {};
  // Of 0 .. 1. Where there are more than `sketch` numbers these are estimates; see
  // StatsReport::rank_error.
  std::vector<double> quantiles = {0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};
  // The size of the sketches that quantiles come from, in numbers: 8 to 2^20. A column takes about
  // 50 bytes of the budget for each.
  std::uint64_t sketch = 1024;
  std::uint64_t bins = 40;  // of histograms: 1 to 10,000
  std::uint64_t top = 20;   // so many of the most frequent tokens
  // A file for checkpoints, which is removed at the end. Columns then take twice as much of the
  // budget. Empty: a killed run begins again.
  std::string state = {};
  bool resume = false;  // goes on from `state`, if that is there
  std::uint64_t checkpoint_bytes = std::uint64_t{1} << 30;
  std::function<void(const WorkProgress&)> progress = {};
};

// So many numbers are begin .. end: an estimate like quantiles. The last bin has its end in it.
struct HistogramBin {
  double begin = 0, end = 0;
  double count = 0;
};

// Of numbers. NaN and infinities are counted; all else is of the finite numbers. Integers beyond
// 2^53 are rounded.
struct NumberStats {
  std::uint64_t count = 0;  // of finite numbers
  std::uint64_t nan = 0, positive_infinity = 0, negative_infinity = 0;
  // Zero when there are no finite numbers. The variance is that of all of them, as np.var has it.
  double min = 0, max = 0, mean = 0, variance = 0;
  std::vector<double> quantiles;  // at StatsOptions::quantiles
  // Of the middle, where a few numbers lie far out; `below` and `above` are not in it.
  std::vector<HistogramBin> histogram;
  double below = 0, above = 0;
};

struct TokenCount {
  std::int64_t token = 0;
  std::uint64_t count = 0;
};

struct StatsReport {
  std::uint64_t items = 0, bytes = 0;
  std::vector<NumberStats> columns;    // of kRows: one for each element of a row
  std::optional<NumberStats> lengths;  // of documents, in tokens; of lines, in bytes
  // Of tokens. Those that are negative, or for whose counters the budget has no room, are
  // `uncounted`.
  std::uint64_t tokens = 0, distinct = 0, uncounted = 0;
  std::optional<std::int64_t> largest = {};
  std::vector<TokenCount> most_frequent;
  // A quantile q is a number whose place among all of them is q to within this share, with a
  // probability of 99 %.
  double rank_error = 0;
  bool resumed = false;
};

// Reads everything once. Moments are exact but for rounding (Chan, Golub and LeVeque's pairwise
// updates), token counts are exact, and quantiles come from KLL sketches (Karnin, Lang and Liberty,
// "Optimal Quantile Approximation in Streams", 2016). The figures depend on the data alone, not on
// the budget or the number of processors. Throws Error.
StatsReport stats(const StatsOptions& options);

}  // namespace evenkeel

#pragma GCC visibility pop
