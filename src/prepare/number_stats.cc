#include "prepare/number_stats.h"

#include <algorithm>
#include <cmath>

namespace evenkeel {
namespace {

using Cumulated = std::vector<std::pair<double, std::uint64_t>>;

// How many numbers are below `value` or, if `with_equal`, not above it.
double rank_of(const Cumulated& sketch, double value, bool with_equal) {
  const auto place =
      with_equal ? std::ranges::upper_bound(sketch, value, {}, &Cumulated::value_type::first)
                 : std::ranges::lower_bound(sketch, value, {}, &Cumulated::value_type::first);
  return place == sketch.begin() ? 0 : static_cast<double>(std::prev(place)->second);
}

double quantile_of(const Cumulated& sketch, double q) {
  const auto wanted = static_cast<std::uint64_t>(std::ceil(q * double(sketch.back().second)));
  const auto place = std::ranges::lower_bound(sketch, std::max<std::uint64_t>(wanted, 1), {},
                                              &Cumulated::value_type::second);
  return place == sketch.end() ? sketch.back().first : place->first;
}

// The histogram covers all numbers or, if the extremes are far out, the middle 99 %.
void fill_histogram(NumberStats& stats, const Cumulated& sketch, std::uint64_t bins) {
  double begin = stats.min, end = stats.max;
  const double low = quantile_of(sketch, 0.005), high = quantile_of(sketch, 0.995);
  if (high > low && end / 5 - begin / 5 > high - low) {
    const double margin = (high - low) / 20;
    begin = std::max(begin, low - margin);
    end = std::min(end, high + margin);
  }
  if (!(end > begin) || bins == 0) bins = 1;
  const double all = static_cast<double>(sketch.back().second);
  const double scale = static_cast<double>(stats.count) / all;
  double before = rank_of(sketch, begin, false);
  stats.below = before * scale;
  for (std::uint64_t i = 0; i < bins; ++i) {
    const double share = static_cast<double>(i + 1) / static_cast<double>(bins);
    const double from = i == 0 ? begin : stats.histogram.back().end;
    const double to = i + 1 == bins ? end : begin * (1 - share) + end * share;
    const double upto = rank_of(sketch, to, i + 1 == bins);
    stats.histogram.push_back({from, to, (upto - before) * scale});
    before = upto;
  }
  stats.above = (all - before) * scale;
}

}  // namespace

void NumberCollector::add(std::span<const double> numbers) {
  while (!numbers.empty()) {
    const std::size_t now = std::min(numbers.size(), kTogether - count_waiting_);
    std::copy_n(numbers.begin(), now, waiting_ + count_waiting_);
    count_waiting_ += now;
    numbers = numbers.subspan(now);
    if (count_waiting_ < kTogether) return;
    add_block(waiting_);
    count_waiting_ = 0;
  }
}

void NumberCollector::save(StateWriter& state) const {
  for (const std::uint64_t number : {nan_, positive_infinity_, negative_infinity_}) {
    state.put(number);
  }
  for (const double number : {min_, max_, mean_, squares_}) state.put(number);
  state.put(std::uint64_t{count_waiting_});
  state.put(std::span<const double>(waiting_, count_waiting_));
  sketch_.save(state);
}

void NumberCollector::load(StateReader& state) {
  for (std::uint64_t* number : {&nan_, &positive_infinity_, &negative_infinity_}) {
    state.get(*number);
  }
  for (double* number : {&min_, &max_, &mean_, &squares_}) state.get(*number);
  count_waiting_ = state.get_count(kTogether - 1);
  state.get(std::span<double>(waiting_, count_waiting_));
  sketch_.load(state);
}

void NumberCollector::add_block(std::span<double> numbers) {
  std::size_t count = 0;
  for (const double number : numbers) {
    numbers[count] = number;
    if (std::isfinite(number)) {
      ++count;
    } else if (std::isnan(number)) {
      ++nan_;
    } else {
      ++(number > 0 ? positive_infinity_ : negative_infinity_);
    }
  }
  if (count == 0) return;
  numbers = numbers.first(count);
  double sum = 0, min = numbers[0], max = numbers[0];
  for (const double number : numbers) {
    sum += number / static_cast<double>(count);  // divided first, so that the sum does not overflow
    min = std::min(min, number);
    max = std::max(max, number);
  }
  double squares = 0, rest = 0;
  for (const double number : numbers) {
    const double difference = number - sum;
    squares += difference * difference;
    rest += difference;
  }
  const double mean = sum + rest / static_cast<double>(count);
  const auto before = static_cast<double>(sketch_.count()), now = static_cast<double>(count);
  squares -= rest * rest / now;
  if (before == 0) {
    min_ = min, max_ = max, mean_ = mean, squares_ = squares;
  } else {
    const double difference = mean - mean_, share = now / (before + now);
    min_ = std::min(min_, min), max_ = std::max(max_, max);
    mean_ += difference * share;
    squares_ += squares + difference * difference * before * share;
  }
  sketch_.add(numbers);
}

NumberStats NumberCollector::result(const StatsOptions& options) {
  add_block({waiting_, count_waiting_});
  count_waiting_ = 0;
  NumberStats stats;
  stats.count = sketch_.count();
  stats.nan = nan_;
  stats.positive_infinity = positive_infinity_;
  stats.negative_infinity = negative_infinity_;
  if (stats.count == 0) return stats;
  stats.min = min_, stats.max = max_, stats.mean = mean_;
  stats.variance = std::max(0.0, squares_) / static_cast<double>(stats.count);
  const Cumulated sketch = sketch_.cumulated();
  for (const double q : options.quantiles) {
    stats.quantiles.push_back(q <= 0 ? min_ : q >= 1 ? max_ : quantile_of(sketch, q));
  }
  fill_histogram(stats, sketch, options.bins);
  return stats;
}

}  // namespace evenkeel
