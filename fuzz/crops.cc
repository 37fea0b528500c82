// Crop orders: crops stay inside the data, no crop comes twice in an epoch, mixtures keep their
// shares, and seeking equals stepping.
#include <cmath>
#include <set>

#include "fuzz/target.h"
#include "loader/mixture.h"
#include "tokens/crop_order.h"

namespace evenkeel::fuzz {
namespace {

void check_crops(Input& input) {
  const std::uint64_t tokens = input.any_size() >> 1, block = input.any_size();
  const auto order = static_cast<CropOrder>(input.upto(2));
  const std::uint64_t seed = input.any_size(), position = input.any_size() >> 1;
  refused([&] {
    CropSequence crops(tokens, block, order, seed), other(tokens, block, order, seed);
    std::set<std::uint64_t> starts;
    const std::uint64_t epoch = crops.epoch_samples();
    for (std::uint64_t i = 0; i < 20 && i < UINT64_MAX / 2 - position; ++i) {
      const SampleOrder::Place crop = crops.at(position + i);
      MUST(crop.row < tokens - block);  // the crop and the token after it are inside
      MUST(epoch == 0 ? crop.epoch == 0 : crop.epoch == (position + i) / epoch);
      // Within an epoch no crop comes twice.
      if (epoch > 0 && (position + i) % epoch == 0) starts.clear();
      if (epoch > 0) MUST(starts.insert(crop.row).second);
    }
    // The results do not depend on the order of calls.
    const std::uint64_t later = position + 19;
    MUST(other.at(later).row == crops.at(later).row);
    MUST(other.at(position).row == crops.at(position).row);
  });
}

double any_weight(Input& input) {
  const std::uint64_t kind = input.upto(9);
  if (kind == 0) return 0;
  const auto whole = static_cast<double>(input.number<std::uint8_t>());
  return kind < 6 ? whole : std::ldexp(whole, static_cast<int>(input.upto(120)) - 60);
}

void check_mixture(Input& input) {
  std::vector<double> weights;
  for (std::uint64_t count = input.upto(5); count > 0; --count) {
    // Sometimes many equal weights, as if every folder were a set.
    const std::uint64_t alike = input.upto(31) == 31 ? input.upto(3000) : 1;
    weights.resize(weights.size() + alike, any_weight(input));
  }
  const std::uint64_t far = input.upto(3000);
  refused([&] {
    Mixture walked(weights), sought(weights);
    std::uint64_t sum = 0;
    for (const std::uint64_t share : walked.shares()) {
      MUST(share <= walked.period());
      sum += share;
    }
    MUST(sum == walked.period());
    const std::uint64_t steps = weights.size() > 50 ? far % 20 : far;
    std::vector<std::uint64_t> taken(weights.size());
    for (std::uint64_t step = 0; step < steps; ++step) {
      const Mixture::Draw draw = walked.next();
      MUST(draw.set < weights.size() && weights[draw.set] > 0);
      MUST(draw.index == taken[draw.set]++);
    }
    for (std::size_t set = 0; set < weights.size(); ++set) {
      const double due = static_cast<double>(walked.shares()[set]) * static_cast<double>(steps) /
                         static_cast<double>(walked.period());
      MUST(std::abs(static_cast<double>(taken[set]) - due) < 1.001);
    }
    sought.seek(steps);
    const Mixture::Draw here = walked.next(), there = sought.next();
    MUST(here.set == there.set && here.index == there.index);
  });
}

FUZZ_TARGET(crops) {
  if (input.flag()) {
    check_crops(input);
  } else {
    check_mixture(input);
  }
}

}  // namespace
}  // namespace evenkeel::fuzz
