// Orders of rows that depend on documents.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "documents/document_index.h"
#include "documents/packs.h"
#include "evenkeel/tokens.h"
#include "loader/schedule.h"

namespace evenkeel {

// Counters for rows that begin at documents.
struct StartCounts {
  std::atomic<std::uint64_t> rows = 0, inside = 0;  // `inside`: rows that begin inside a document
  std::atomic<std::uint64_t> looked_at = 0, skipped = 0;  // tokens, of a sample of the rows
};

// Crops of another order, moved forward to the next start of a document; see
// DocumentOptions::use_leftovers. `counts` may be nullptr. It and the reader must outlive the
// order.
std::unique_ptr<SampleOrder> start_order(std::unique_ptr<SampleOrder> crops, DocumentReader& reader,
                                         std::uint64_t columns, bool use_leftovers,
                                         StartCounts* counts);

// Rows of packed windows, numbered window by window. Windows are permuted by the seed, and the rows
// of a group of windows are mixed. With kBlocks, the windows of a group take turns. `turn` is
// SampleOrder::turn.
std::unique_ptr<SampleOrder> pack_order(const Packs& packs, const LoaderOptions& options,
                                        std::uint64_t seed, std::uint64_t turn);
// The number of windows that are mixed: `packs` may have fewer than the options say.
std::uint64_t mixed_windows(const Packs& packs, const LoaderOptions& options);

}  // namespace evenkeel
