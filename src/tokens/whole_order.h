// The order of documents if rows are whole documents: sorted by length within windows.
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

// Documents are permuted by the seed, or drawn. Each `window` consecutive documents of that order
// are sorted by length and cut into buckets. The buckets are permuted, and so are the documents of
// each bucket. docs/documents.md defines the order. A pure function of the position, except that it
// caches a window. Not thread-safe. The reader must outlive it.
class WholeOrder final : public SampleOrder {
 public:
  // `options` must come from checked_documents. Memory for a window is reserved from the budget.
  // `turn` is SampleOrder::turn.
  WholeOrder(DocumentReader& reader, const LoaderOptions& options, std::uint64_t seed,
             std::uint64_t turn, const Budget& budget);
  ~WholeOrder() override { reader_.keep({}); }
  WholeOrder(const WholeOrder&) = delete;
  WholeOrder& operator=(const WholeOrder&) = delete;
  // The number of documents in a window, if there are `documents` in total.
  static std::uint64_t window_of(const LoaderOptions& options, std::uint64_t documents);

  Place at(std::uint64_t position) override;
  std::uint64_t epoch_samples() const override {
    return order_ == CropOrder::kRandom ? 0 : documents_;
  }
  std::uint64_t turn() const override { return turn_; }

 private:
  struct Sorted {
    std::uint64_t document = 0;
    std::uint32_t length = 0, slot = 0;  // `slot`: its place in the window before sorting
  };
  void load(std::uint64_t epoch, std::uint64_t window);
  std::uint64_t document_at(std::uint64_t slot) const;  // in epoch_
  void find_lengths();
  void arrange(std::uint64_t number);

  DocumentReader& reader_;
  const CropOrder order_;
  const std::uint64_t seed_, columns_, documents_, bucket_, window_, windows_;
  const std::uint64_t block_, turn_;  // block_ is 1 except with kBlocks
  const Reservation share_;
  std::uint64_t epoch_ = 0, loaded_ = UINT64_MAX;  // which window
  std::optional<Permutation> of_documents_;        // of epoch_; with kBlocks, of full blocks
  std::uint64_t phase_ = 0;                        // of epoch_, with kBlocks
  std::vector<Sorted> sorted_;
  std::vector<std::uint64_t> wanted_, arranged_;  // documents
  std::vector<DocumentReader::Bounds> bounds_;    // of the documents of the window, ascending
};

}  // namespace evenkeel
