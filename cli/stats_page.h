// The page that `stats` writes: histograms of columns, lengths and tokens.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "evenkeel/stats.h"

namespace evenkeel::cli {

struct StatsPage {
  std::string title;                                       // the files
  std::vector<std::pair<std::string, std::string>> facts;  // listed above the charts
  std::vector<double> quantiles;                           // as requested
  std::string length_unit;                                 // "tokens", "bytes"
};

// One file without scripts. It follows the light or dark setting of the reader's system.
std::string stats_html(const StatsPage& page, const StatsReport& report);

// With at most six digits: "0.25", "1.5e+09".
std::string number_text(double value);
// "1 %", "median"
std::string quantile_name(double q);

}  // namespace evenkeel::cli
