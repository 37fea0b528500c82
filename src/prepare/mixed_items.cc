#include "prepare/mixed_items.h"

#include <algorithm>

#include "base/number.h"
#include "evenkeel/bytes.h"
#include "loader/mixture.h"
#include "prepare/input_files.h"

namespace evenkeel {
namespace {

std::vector<double> weights_of(const std::vector<WeightedFiles>& sets) {
  std::vector<double> weights;
  weights.reserve(sets.size());
  for (const WeightedFiles& set : sets) weights.push_back(set.weight);
  return weights;
}

class MixedSource final : public ItemSource {
 public:
  MixedSource(std::vector<std::unique_ptr<ItemSource>> sources, std::vector<std::uint64_t> counts,
              const std::vector<WeightedFiles>& sets, bool repeat)
      : sources_(std::move(sources)), counts_(std::move(counts)), mixture_(weights_of(sets)) {
    kind = sources_.front()->kind;
    items_ = total_items(repeat);
    mixture_.seek(items_);
    double bytes = 0;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      bytes += double(sources_[i]->bytes()) / double(counts_[i]) * double(mixture_.before(i));
    }
    mean_bytes_ = static_cast<std::uint64_t>(std::max(1.0, bytes / std::max(1.0, double(items_))));
    seek({});
  }

  std::optional<std::span<const std::byte>> next() override {
    if (mixture_.position() == items_) return std::nullopt;
    const Mixture::Draw draw = mixture_.next();
    if (draw.index > 0 && draw.index % counts_[draw.set] == 0) sources_[draw.set]->seek_item(0);
    return sources_[draw.set]->next();
  }
  ItemPosition position() const override {
    return {mixture_.position(), mixture_.position() * mean_bytes_};
  }
  void seek(const ItemPosition& position) override { seek_item(position.item); }
  void seek_item(std::uint64_t item) override {
    mixture_.seek(item);
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      // A set that was used up begins again when one of its items is drawn.
      sources_[i]->seek_item(mixture_.before(i) % counts_[i]);
    }
  }
  std::uint64_t bytes() const override { return items_ * mean_bytes_; }
  std::uint64_t estimated_items() const override { return items_; }
  std::uint64_t item_bytes() const override { return 0; }

 private:
  // Whether `items` items are as many as the mixture has, or more.
  bool reaches(std::uint64_t items, bool repeat) {
    mixture_.seek(items);
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      const std::uint64_t taken = mixture_.before(i);
      if (repeat && taken < counts_[i]) return false;
      if (!repeat && taken > counts_[i]) return true;
    }
    return repeat;
  }
  std::uint64_t total_items(bool repeat) {
    std::uint64_t high = mixture_.period();
    while (!reaches(high, repeat) && high <= UINT64_MAX / 2) high *= 2;
    std::uint64_t low = 0;  // does not reach the end, or is 0
    while (high - low > 1) {
      const std::uint64_t middle = low + (high - low) / 2;
      (reaches(middle, repeat) ? high : low) = middle;
    }
    return repeat ? high : low;
  }

  std::vector<std::unique_ptr<ItemSource>> sources_;
  const std::vector<std::uint64_t> counts_;
  Mixture mixture_;
  std::uint64_t items_ = 0, mean_bytes_ = 1;
};

}  // namespace

std::unique_ptr<ItemSource> open_mixed(const ItemInput& input,
                                       const std::vector<WeightedFiles>& sets, bool repeat,
                                       const Budget& budget, std::uint64_t memory,
                                       const CountedBytes& counted) {
  std::vector<std::unique_ptr<ItemSource>> sources;
  std::vector<std::uint64_t> counts;
  std::vector<std::string> files;
  std::string fingerprint = repeat ? "mixed, repeated" : "mixed";
  std::uint64_t counted_bytes = 0, all_bytes = 0;
  for (const WeightedFiles& set : sets) {
    if (input.unit != ItemUnit::kLines) break;
    for (const std::string& path : set.paths) all_bytes += file_size(path);
  }
  for (const WeightedFiles& set : sets) {
    if (!(set.weight > 0 && set.weight < 1e18)) {
      throw Error(ErrorKind::kInvalid, "merge", "a weight is " + number_text(set.weight))
          .in(set.paths.empty() ? "" : set.paths.front())
          .hint("weights must be above 0 and below 1e18; leave out files that are not wanted");
    }
    ItemInput one = input;
    one.paths = set.paths;
    auto source = open_items(one, budget, std::max<std::uint64_t>(memory / sets.size(), 1_MiB));
    std::uint64_t items = source->estimated_items();
    if (input.unit == ItemUnit::kLines) {
      for (items = 0; source->next(); ++items) {
        if (counted && items % 4096 == 0) {
          counted(counted_bytes + source->position().offset, all_bytes);
        }
      }
      counted_bytes += source->bytes();
      source->seek_item(0);
    }
    if (items == 0) {
      throw Error(ErrorKind::kInvalid, "merge", "it has no items to mix")
          .in(set.paths.front())
          .hint("leave it out");
    }
    const ItemKind& first = sources.empty() ? source->kind : sources.front()->kind;
    const auto dtype = [](const ItemKind& kind) {
      return kind.tokens ? kind.tokens->dtype : kind.array.dtype;
    };
    if (source->kind.row_bytes != first.row_bytes || dtype(source->kind) != dtype(first) ||
        source->kind.array.descr != first.array.descr) {
      throw Error(ErrorKind::kInvalid, "merge",
                  "its items are " + dtype(source->kind).name() + " in rows of " +
                      with_commas(source->kind.row_bytes) + " bytes, those of the first file " +
                      dtype(first).name() + " in rows of " + with_commas(first.row_bytes))
          .in(set.paths.front())
          .hint("`evenkeel convert` changes types");
    }
    fingerprint += " " + number_text(set.weight) + " of\n" + source->fingerprint();
    files.insert(files.end(), source->files_.begin(), source->files_.end());
    sources.push_back(std::move(source));
    counts.push_back(items);
  }
  auto mixed = std::make_unique<MixedSource>(std::move(sources), std::move(counts), sets, repeat);
  mixed->files_ = std::move(files);
  mixed->fingerprint_ = std::move(fingerprint);
  return mixed;
}

}  // namespace evenkeel
