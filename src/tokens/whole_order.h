// Which document comes when, where rows are whole documents: sorted by length within windows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "documents/document_index.h"
#include "evenkeel/budget.h"
#include "evenkeel/order.h"
#include "evenkeel/tokens.h"
#include "loader/schedule.h"

namespace evenkeel {

// Documents come in a keyed order, or are drawn. `window` of them in a row of that order are sorted
// by length and cut into buckets, which come in a keyed order of their own, as do the documents of
// a bucket. docs/documents.md defines it. A pure function of the position, but for the window that
// it remembers. One thread at a time. The reader must outlive it.
class WholeOrder final : public SampleOrder {
 public:
  // `options` as checked_documents gives them. Memory of a window comes from the budget.
  // `turn` as SampleOrder::turn.
  WholeOrder(DocumentReader& reader, const LoaderOptions& options, std::uint64_t seed,
             std::uint64_t turn, const Budget& budget);
  ~WholeOrder() override { reader_.keep({}); }
  WholeOrder(const WholeOrder&) = delete;
  WholeOrder& operator=(const WholeOrder&) = delete;
  // Documents of a window, of `documents` in all.
  static std::uint64_t window_of(const LoaderOptions& options, std::uint64_t documents);

  Place at(std::uint64_t position) override;
  std::uint64_t epoch_samples() const override {
    return order_ == CropOrder::kRandom ? 0 : documents_;
  }
  std::uint64_t turn() const override { return turn_; }

 private:
  struct Sorted {
    std::uint64_t document = 0;
    std::uint32_t length = 0, slot = 0;  // where the window's own order has it
  };
  void load(std::uint64_t epoch, std::uint64_t window);
  std::uint64_t document_at(std::uint64_t slot) const;  // of epoch_
  void find_lengths();
  void arrange(std::uint64_t number);

  DocumentReader& reader_;
  const CropOrder order_;
  const std::uint64_t seed_, columns_, documents_, bucket_, window_, windows_;
  const std::uint64_t block_, turn_;  // block_: of kBlocks
  const Reservation share_;
  std::uint64_t epoch_ = 0, loaded_ = UINT64_MAX;  // which window
  std::optional<Permutation> of_documents_;        // of epoch_; with kBlocks, of full blocks
  std::uint64_t phase_ = 0;                        // of epoch_, with kBlocks
  std::vector<Sorted> sorted_;
  std::vector<std::uint64_t> wanted_, arranged_;  // documents
  std::vector<DocumentReader::Bounds> bounds_;    // of the window's documents, which ascend
};

}  // namespace evenkeel
