// Statistics of files far larger than memory: columns, tokens, documents and lines.
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
  // From 0 to 1. For more than `sketch` numbers, quantiles are estimates; see
  // StatsReport::rank_error.
  std::vector<double> quantiles = {0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};
  // How many numbers the sketches hold that quantiles are computed from: 8 to 2^20. A column takes
  // about 50 bytes of the budget for each.
  std::uint64_t sketch = 1024;
  std::uint64_t bins = 40;  // of histograms: 1 to 10,000
  std::uint64_t top = 20;   // how many of the most frequent tokens to report
  // A file for checkpoints, which is removed at the end. Columns then take twice as much of the
  // budget. Empty: a killed run starts over.
  std::string state = {};
  bool resume = false;  // continue from `state`, if it exists
  std::uint64_t checkpoint_bytes = std::uint64_t{1} << 30;
  // Called regularly. An exception from it ends the work.
  std::function<void(const WorkProgress&)> progress = {};
};

// `count` numbers are from begin to end. An estimate, like quantiles. The last bin includes its
// end.
struct HistogramBin {
  double begin = 0, end = 0;
  double count = 0;
};

// Statistics of numbers. NaN and infinities are only counted; everything else covers the finite
// numbers. Integers beyond 2^53 are rounded.
struct NumberStats {
  std::uint64_t count = 0;  // of finite numbers
  std::uint64_t nan = 0, positive_infinity = 0, negative_infinity = 0;
  // Zero if there are no finite numbers. The variance is the population variance, like np.var.
  double min = 0, max = 0, mean = 0, variance = 0;
  std::vector<double> quantiles;  // at StatsOptions::quantiles
  // Only of the middle if there are outliers; `below` and `above` count the numbers outside.
  std::vector<HistogramBin> histogram;
  double below = 0, above = 0;
};

struct TokenCount {
  std::int64_t token = 0;
  std::uint64_t count = 0;
};

struct StatsReport {
  std::uint64_t items = 0, bytes = 0;
  std::vector<NumberStats> columns;    // for kRows: one for each element of a row
  std::optional<NumberStats> lengths;  // of documents, in tokens; of lines, in bytes
  // For tokens. `uncounted` are tokens that are negative or whose counters do not fit the budget.
  std::uint64_t tokens = 0, distinct = 0, uncounted = 0;
  std::optional<std::int64_t> largest = {};
  std::vector<TokenCount> most_frequent;
  // With a probability of 99 %, the rank of the number returned for quantile q is within q ± this
  // share.
  double rank_error = 0;
  bool resumed = false;
};

// Reads everything once. Moments are exact except for rounding (Chan, Golub and LeVeque's pairwise
// updates), token counts are exact, and quantiles come from KLL sketches (Karnin, Lang and Liberty,
// "Optimal Quantile Approximation in Streams", 2016). The results depend only on the data, not on
// the budget or the number of processors. Throws Error.
StatsReport stats(const StatsOptions& options);

}  // namespace evenkeel

#pragma GCC visibility pop
