#include "tokens/document_orders.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/checked.h"

namespace evenkeel {
namespace {

// Crops of another order, moved forward to the next start of a document.
class StartOrder final : public SampleOrder {
 public:
  StartOrder(std::unique_ptr<SampleOrder> crops, DocumentReader& reader, std::uint64_t columns,
             bool use_leftovers, StartCounts* counts)
      : crops_(std::move(crops)),
        reader_(reader),
        columns_(columns),
        use_leftovers_(use_leftovers),
        counts_(counts),
        last_(reader.index().tokens() - columns - 1) {}

  Place at(std::uint64_t position) override {
    const Place place = crops_->at(position);
    Sums sums;
    const std::uint64_t row = moved(place.row, reader_.locate(place.row), sums);
    add(sums);
    return {row, place.epoch};
  }
  void fill(const Steps::Run& positions, std::span<std::uint64_t> rows) override {
    crops_->fill(positions, rows);
    documents_.resize(rows.size());
    reader_.locate(rows, documents_);
    Sums sums;
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = moved(rows[i], documents_[i], sums);
    add(sums);
  }
  std::uint64_t epoch_samples() const override { return crops_->epoch_samples(); }
  std::uint64_t turn() const override { return crops_->turn(); }

 private:
  // The counts of StartCounts, for one call.
  struct Sums {
    std::uint64_t rows = 0, inside = 0, looked_at = 0, skipped = 0;
  };

  // Where the row begins that belongs to the crop at `start`, a token of `document`.
  std::uint64_t begin_of_row(std::uint64_t start, std::uint64_t document, bool& inside) {
    const std::uint64_t end = start + columns_;
    const auto starts = reader_.three_starts(document);
    const std::size_t which = starts[0] == start ? 0 : 1;
    const std::uint64_t begin = starts[which];
    inside = use_leftovers_ && (begin >= end || begin > last_);
    if (inside) return start;
    if (begin > last_) return reader_.start(reader_.locate(last_));
    // The documents of the row are looked up next. If the document at `begin` is empty, it does not
    // contain that token.
    if (starts[which + 1] > begin) reader_.remember(begin, document + which);
    return begin;
  }

  std::uint64_t moved(std::uint64_t start, std::uint64_t document, Sums& sums) {
    bool inside = false;
    const std::uint64_t begin = begin_of_row(start, document, inside);
    if (counts_) count(start, begin, inside, sums);
    return begin;
  }

  // Counts tokens that no row shows, for a sample of the rows: tokens of a block that lie before
  // its row and after the row of the previous block.
  void count(std::uint64_t start, std::uint64_t begin, bool inside, Sums& sums) {
    constexpr std::uint64_t kOneOf = 16;
    ++sums.rows;
    if (inside) ++sums.inside;
    if (rows_++ % kOneOf != 0) return;
    std::uint64_t shown = start;  // the previous row shows tokens up to here
    if (start >= columns_) {
      bool ignored;
      const std::uint64_t before = start - columns_;
      const std::uint64_t row = begin_of_row(before, reader_.locate(before), ignored);
      if (row <= start) shown = row + columns_;
    }
    const std::uint64_t end = std::min(begin, start + columns_);
    sums.looked_at += columns_;
    sums.skipped += end > shown ? end - shown : 0;
  }

  void add(const Sums& sums) const {
    if (!counts_) return;
    counts_->rows.fetch_add(sums.rows, std::memory_order_relaxed);
    counts_->inside.fetch_add(sums.inside, std::memory_order_relaxed);
    counts_->looked_at.fetch_add(sums.looked_at, std::memory_order_relaxed);
    counts_->skipped.fetch_add(sums.skipped, std::memory_order_relaxed);
  }

  const std::unique_ptr<SampleOrder> crops_;
  DocumentReader& reader_;
  const std::uint64_t columns_;
  const bool use_leftovers_;
  StartCounts* const counts_;
  const std::uint64_t last_;  // the last start with room for a row and its last target
  std::uint64_t rows_ = 0;    // rows that were counted
  std::vector<std::uint64_t> documents_;
};

// Rows of packed windows; see pack_order.
class PackOrder final : public SampleOrder {
 public:
  PackOrder(const Packs& packs, const LoaderOptions& options, std::uint64_t seed,
            std::uint64_t turn)
      : order_(options.order),
        seed_(seed),
        windows_(packs.windows()),
        rows_(packs.window_rows()),
        group_(mixed_windows(packs, options)),
        turn_(turn) {}

  Place at(std::uint64_t position) override {
    const std::uint64_t epoch_rows = windows_ * rows_;
    const std::uint64_t epoch = position / epoch_rows, in_epoch = position % epoch_rows;
    const std::uint64_t group = in_epoch / (group_ * rows_);
    if (in_group_.empty() || epoch != epoch_ || group != of_group_) load(epoch, group);
    const std::uint64_t within = in_epoch - group * group_ * rows_;
    const bool drawn = order_ == CropOrder::kRandom;
    if (order_ == CropOrder::kBlocks) {
      const std::uint64_t slot = within % in_group_.size(), turn = within / in_group_.size();
      return {in_group_[slot] * rows_ + of_rows_[slot](turn), epoch};
    }
    const std::uint64_t mixed = of_rows_.front()(within);
    return {in_group_[mixed / rows_] * rows_ + mixed % rows_, drawn ? 0 : epoch};
  }
  std::uint64_t epoch_samples() const override {
    return order_ == CropOrder::kRandom ? 0 : windows_ * rows_;
  }
  std::uint64_t turn() const override { return turn_; }

 private:
  void load(std::uint64_t epoch, std::uint64_t group) {
    const std::uint64_t first = group * group_, windows = std::min(group_, windows_ - first);
    const Permutation of_windows(windows_, seed_, epoch);
    in_group_.clear();
    of_rows_.clear();
    for (std::uint64_t place = first; place < first + windows; ++place) {
      // kRandom draws with replacement: a window for each place of a window.
      in_group_.push_back(order_ == CropOrder::kRandom
                              ? uniform_draw(seed_, 0, epoch * windows_ + place, windows_)
                              : of_windows(place));
      // The windows of a group take turns, row by row. A rank takes each world-th position, so
      // ranks have windows of their own if the world divides the group.
      if (order_ != CropOrder::kBlocks) continue;
      of_rows_.emplace_back(rows_, seed_ ^ kRowsSeed, epoch * windows_ + place);
    }
    if (order_ != CropOrder::kBlocks) {
      const std::uint64_t groups = divide_up(windows_, group_);
      of_rows_.emplace_back(windows * rows_, seed_ ^ kRowsSeed, epoch * groups + group);
    }
    epoch_ = epoch;
    of_group_ = group;
  }

  static constexpr std::uint64_t kRowsSeed = 0x7061636b5f726f77;  // "pack_row"
  const CropOrder order_;
  const std::uint64_t seed_, windows_, rows_, group_, turn_;
  std::uint64_t epoch_ = 0, of_group_ = 0;
  std::vector<std::uint64_t> in_group_;  // windows of that group
  std::vector<Permutation> of_rows_;     // of all its rows; with kBlocks, of each window's rows
};

}  // namespace

std::unique_ptr<SampleOrder> start_order(std::unique_ptr<SampleOrder> crops, DocumentReader& reader,
                                         std::uint64_t columns, bool use_leftovers,
                                         StartCounts* counts) {
  return std::make_unique<StartOrder>(std::move(crops), reader, columns, use_leftovers, counts);
}

std::unique_ptr<SampleOrder> pack_order(const Packs& packs, const LoaderOptions& options,
                                        std::uint64_t seed, std::uint64_t turn) {
  return std::make_unique<PackOrder>(packs, options, seed, turn);
}

std::uint64_t mixed_windows(const Packs& packs, const LoaderOptions& options) {
  return std::min<std::uint64_t>(options.documents.mixed_windows, packs.windows());
}

}  // namespace evenkeel
