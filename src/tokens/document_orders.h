// Which rows a token loader takes by documents.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "documents/document_index.h"
#include "documents/packs.h"
#include "evenkeel/tokens.h"
#include "loader/schedule.h"

namespace evenkeel {

// Of rows that begin at documents.
struct StartCounts {
  std::atomic<std::uint64_t> rows = 0, inside = 0;
  std::atomic<std::uint64_t> looked_at = 0, skipped = 0;  // tokens, of some rows
};

// Crops of another order, moved on to where a document begins; see DocumentOptions::use_leftovers.
// `counts` may be nullptr; it and the reader must outlive the order.
std::unique_ptr<SampleOrder> start_order(std::unique_ptr<SampleOrder> crops, DocumentReader& reader,
                                         std::uint64_t columns, bool use_leftovers,
                                         StartCounts* counts);

// Rows of packed windows, numbered window by window. Windows come in a keyed order, and the rows of
// some of them are mixed. With kBlocks these windows take turns. `turn` as SampleOrder::turn.
std::unique_ptr<SampleOrder> pack_order(const Packs& packs, const LoaderOptions& options,
                                        std::uint64_t seed, std::uint64_t turn);
// Windows that are mixed, of `packs` that may have fewer.
std::uint64_t mixed_windows(const Packs& packs, const LoaderOptions& options);

}  // namespace evenkeel
