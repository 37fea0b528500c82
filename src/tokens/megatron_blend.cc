#include "tokens/megatron_blend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/checked.h"
#include "base/number.h"

namespace evenkeel {
namespace {

Error wrong_blend(const std::string& what) {
  return Error(ErrorKind::kInvalid, "order \"megatron\"", what);
}

// Adds in the order of NumPy: eight partial sums, and recursive halves above 128 numbers.
double numpy_sum(std::span<const double> values) {
  constexpr std::size_t kLanes = 8, kLongest = 128;
  const std::size_t n = values.size();
  if (n < kLanes) return std::accumulate(values.begin(), values.end(), 0.0);
  if (n > kLongest) {
    const std::size_t half = n / 2 - n / 2 % kLanes;
    return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
  }
  double r[kLanes];
  std::copy_n(values.begin(), kLanes, r);
  const std::size_t whole = n - n % kLanes;
  for (std::size_t i = kLanes; i < whole; ++i) r[i % kLanes] += values[i];
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (std::size_t i = whole; i < n; ++i) sum += values[i];
  return sum;
}

std::vector<double> as_doubles(const std::vector<std::uint64_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

std::uint64_t whole_samples(double samples) {
  if (samples < 9e15) return static_cast<std::uint64_t>(std::ceil(samples));
  throw wrong_blend("there are too many samples to count");
}

}  // namespace

std::vector<double> megatron_normalized(const std::vector<double>& weights) {
  const double sum = numpy_sum(weights);
  std::vector<double> shares;
  shares.reserve(weights.size());
  for (const double weight : weights) shares.push_back(weight / sum);
  return shares;
}

MegatronBlend::MegatronBlend(const std::vector<double>& weights, std::uint64_t size,
                             std::vector<std::uint64_t> sizes, const Budget& budget)
    : weights_(weights),
      sizes_(size == 0 ? std::move(sizes) : std::vector<std::uint64_t>()),
      size_(size),
      counts_(weights.size()) {
  if (size_ == 0) {
    size_ = std::accumulate(sizes_.begin(), sizes_.end(), std::uint64_t{0});
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = static_cast<double>(sizes_[i]) / static_cast<double>(size_);
    }
  } else {
    weights_ = megatron_normalized(weights_);
  }
  const std::uint64_t marks = ((size_ - 1) / kEvery + 1) * weights_.size();
  share_ = budget.reserve(marks * sizeof(std::uint64_t), "the blend of Megatron's data sets");
  marks_.reserve(marks);
  for (std::uint64_t position = 0; position < size_; ++position) {
    if (position % kEvery == 0) marks_.insert(marks_.end(), counts_.begin(), counts_.end());
    ++counts_[choose(position, counts_)];
  }
}

std::size_t MegatronBlend::choose(std::uint64_t position,
                                  std::span<const std::uint64_t> counts) const {
  const double so_far = std::max(static_cast<double>(position), 1.0);
  std::size_t chosen = 0;
  double largest = std::numeric_limits<double>::lowest();
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (!sizes_.empty() && counts[i] == sizes_[i]) continue;
    const double error = weights_[i] * so_far - static_cast<double>(counts[i]);
    if (error > largest) {
      largest = error;
      chosen = i;
    }
  }
  return chosen;
}

MegatronBlend::Draw MegatronBlend::Cursor::at(std::uint64_t position) {
  if (position < position_ || position / kEvery != position_ / kEvery) {
    const std::uint64_t mark = position / kEvery;
    const std::span marks(blend_->marks_);
    std::ranges::copy(marks.subspan(mark * counts_.size(), counts_.size()), counts_.begin());
    position_ = mark * kEvery;
  }
  for (; position_ < position; ++position_) ++counts_[blend_->choose(position_, counts_)];
  const std::size_t set = blend_->choose(position_++, counts_);
  return {set, counts_[set]++};
}

MegatronDataset::MegatronDataset(const std::vector<WeightedTokens>& sets, std::uint64_t block_size,
                                 const MegatronOptions& options, std::uint64_t seed) {
  if (seed > std::numeric_limits<std::uint32_t>::max()) {
    throw wrong_blend("the seed must be below 2^32, as NumPy's RandomState requires; got " +
                      with_commas(seed));
  }
  const bool blended = sets.size() > 1, weighted = blended && !options.by_size;
  if (weighted && options.samples == 0) {
    throw wrong_blend("data sets with weights need a number of samples")
        .hint("give samples, or steps; or leave out the weights to take all of one epoch");
  }
  if (!std::isfinite(options.surplus) || options.surplus < 0) {
    throw wrong_blend("the surplus must be 0 or more; got " + number_text(options.surplus));
  }
  std::vector<double> weights;
  for (const WeightedTokens& set : sets) {
    weights.push_back(set.weight);
    if (!weighted || (std::isfinite(set.weight) && set.weight > 0)) continue;
    throw wrong_blend("weights must be above 0; got " + number_text(set.weight));
  }
  if (weighted) weights = megatron_normalized(weights);
  firsts_.push_back(0);
  std::vector<std::uint64_t> sizes;
  std::uint64_t wanted = 0;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    std::uint64_t samples = blended ? 0 : options.samples;
    if (weighted) {
      const std::uint64_t used = whole_samples(static_cast<double>(options.samples) * weights[i]);
      samples = whole_samples(static_cast<double>(used) * (1 + options.surplus));
      wanted += used;
    }
    sets_.emplace_back(sets[i].tokens, block_size, samples, static_cast<std::uint32_t>(seed));
    sizes.push_back(sets_.back().size());
    firsts_.push_back(firsts_.back() + sizes.back());
  }
  text_ = "megatron samples=" + std::to_string(options.samples) + " ";
  if (!blended) return;
  if (!weighted) {
    weights = as_doubles(sizes);
    wanted = std::min(options.samples, firsts_.back());
  }
  blend_.emplace(weights, wanted, sizes, sets.front().tokens.budget());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (blend_->counts()[i] <= sizes[i]) continue;
    throw wrong_blend("the blend takes " + with_commas(blend_->counts()[i]) +
                      " samples of data set " + std::to_string(i) + ", which has " +
                      with_commas(sizes[i]))
        .hint("raise surplus, which is " + number_text(options.surplus) + " now");
  }
  std::string shares;
  for (const double weight : weights) shares += (shares.empty() ? "" : "+") + number_text(weight);
  text_ +=
      "blend=" + (weighted ? shares + " surplus=" + number_text(options.surplus) : "sizes") + " ";
}

std::uint64_t MegatronDataset::most_runs() const {
  std::uint64_t most = 0;
  for (const MegatronSamples& set : sets_) most = std::max(most, set.most_runs());
  return most;
}

MegatronDataset::Sample MegatronDataset::sample(std::uint64_t row) const {
  const auto behind = std::ranges::upper_bound(firsts_, row);
  const auto set = static_cast<std::size_t>(behind - firsts_.begin()) - 1;
  return {set, row - firsts_[set]};
}

MegatronOrder::MegatronOrder(std::shared_ptr<const MegatronDataset> index)
    : index_(std::move(index)) {
  if (index_->blend()) cursor_.emplace(*index_->blend());
}

SampleOrder::Place MegatronOrder::at(std::uint64_t position) {
  if (position >= index_->size()) {
    throw wrong_blend("sample " + with_commas(position) + " is beyond the end; there are " +
                      with_commas(index_->size()));
  }
  const auto [set, index] = cursor_ ? cursor_->at(position) : MegatronBlend::Draw{0, position};
  return {index_->row(set, index), 0};
}

}  // namespace evenkeel
