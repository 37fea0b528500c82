// The order `blocks` in a token loader: its windows, and the batches that are copied out of them.
#include <utility>

#include "base/checked.h"
#include "order/block_order.h"
#include "tokens/loader.h"

namespace evenkeel {

bool TokenLoader::Impl::windows_of_documents() const {
  if (options_.order != CropOrder::kBlocks || !documents_) return false;
  return options_.documents.mode != DocumentMode::kMask || documents_->mask_array();
}

// Mapped tokens need no windows: rows are taken from the mapping.
void TokenLoader::Impl::open_windows() {
  if (!windows_of_documents()) return windows_.open({LoaderWindows::Field(array_)});
  windows_.open({});
  if (!document_windows_.any() && array_->maps_files()) return;
  documents_->open_windows();
  document_windows_.open(mixture_.size(), [&](std::size_t i) { return make_window_reader(i); });
}

std::unique_ptr<DocumentWindowReader> TokenLoader::Impl::make_window_reader(std::size_t set) {
  const StepOptions& steps = steps_.options();
  OrderWindows windows{.rank = steps.rank, .world = steps.world};
  if (documents_->in_pieces()) {
    windows.epoch = documents_->rows(set);
    windows.window = documents_->window_positions(set);
    if (documents_->whole() && mixture_.size() == 1) windows.taken = steps_.taken_of_epoch();
  } else {
    const auto& [order, shape, repeat] = sets_[set];
    const bool mixed = mixture_.size() > 1;
    const Order all = order->get().for_rank(0, 1);
    windows.epoch = mixed ? whole_turns(all, shape.samples) : shape.samples;
    windows.window = BlockOrder(all, shape.samples).first_position(1);
    windows.taken = mixed ? windows.epoch / steps.world : steps_.taken_of_epoch();
  }
  if (const std::uint64_t epochs = repeat_of(options_.mixture, set)) {
    // As StagedMixture counts: whole turns.
    const std::uint64_t turn = options_.blocks.streams;
    windows.repeat = checked_mul(epochs, windows.epoch).value_or(0) / turn * turn / steps.world;
  }
  DocumentWindowReader::Set made{.number = set,
                                 .windows = windows,
                                 .order = make_order(set, DocumentBatches::OrderUse::kWindows),
                                 .first_token = documents_->first_token_of(set),
                                 .first_mask = documents_->first_mask_of(set),
                                 .usual_tokens = documents_->usual_tokens(set, windows.most()),
                                 .usual_spans = documents_->usual_spans(set, windows.most())};
  return std::make_unique<DocumentWindowReader>(*documents_, array_, documents_->mask_array(),
                                                std::move(made));
}

void TokenLoader::Impl::change_windows(const BlockOptions& blocks) {
  const BlockOptions before = this->blocks();
  if (blocks != before || windows_.missing()) windows_.change(blocks);
  if (!document_windows_.any()) return;
  try {
    open_windows();
  } catch (...) {
    if (blocks != before) {
      windows_.change(before);
      open_windows();
    }
    throw;
  }
}

void TokenLoader::Impl::take_documents(const Filling& batch) {
  std::byte* const stored = stored_[batch.slot].tokens.data();
  std::size_t row = 0;
  for (const SamplePiece& piece : batch.pieces) {
    DocumentWindowReader& reader = document_windows_.reader(piece.set);
    reader.take(piece.first, piece.count,
                [&](const DocumentWindowReader::Held& held, std::uint64_t count) {
                  for (const std::size_t end = row + count; row < end; ++row) {
                    documents_->copy_row(batch.slot, batch.rows, row, held, stored);
                  }
                });
  }
}

}  // namespace evenkeel
