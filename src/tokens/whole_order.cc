#include "tokens/whole_order.h"

#include <algorithm>
#include <tuple>

#include "base/checked.h"

namespace evenkeel {
namespace {

// Make the draws of buckets, and of documents within a bucket, independent of those of documents.
constexpr std::uint64_t kBucketsSeed = 0x6275636b6574735f;     // "buckets_"
constexpr std::uint64_t kInsideSeed = 0x696e5f6275636b65;      // "in_bucke"
constexpr std::uint64_t kBlockPhaseSeed = 0x626c6f636b735f66;  // "blocks_f", for where blocks begin

std::uint64_t whole_buckets(std::uint64_t window, std::uint64_t bucket) {
  return divide_up(window, bucket) * bucket;
}

}  // namespace

WholeOrder::WholeOrder(DocumentReader& reader, const LoaderOptions& options, std::uint64_t seed,
                       std::uint64_t turn, const Budget& budget)
    : reader_(reader),
      order_(options.order),
      seed_(seed),
      columns_(options.block_size),
      documents_(reader.index().size()),
      bucket_(options.documents.bucket),
      window_(window_of(options, documents_)),
      windows_(divide_up(documents_, window_)),
      block_(options.order == CropOrder::kBlocks ? std::min(options.blocks.block_rows, documents_)
                                                 : 1),
      turn_(turn),
      share_(budget.reserve(
          window_ * (sizeof(Sorted) + 2 * sizeof(std::uint64_t) + sizeof(DocumentReader::Bounds)),
          "a window of documents")) {
  sorted_.reserve(window_);
  wanted_.reserve(window_);
  arranged_.reserve(window_);
  bounds_.reserve(window_);
}

std::uint64_t WholeOrder::window_of(const LoaderOptions& options, std::uint64_t documents) {
  return std::min(whole_buckets(options.documents.window, options.documents.bucket),
                  std::max<std::uint64_t>(documents, 1));
}

SampleOrder::Place WholeOrder::at(std::uint64_t position) {
  const std::uint64_t epoch = position / documents_, in_epoch = position % documents_;
  const std::uint64_t window = in_epoch / window_;
  if (loaded_ != epoch * windows_ + window) load(epoch, window);
  return {arranged_[in_epoch - window * window_], order_ == CropOrder::kRandom ? 0 : epoch};
}

void WholeOrder::load(std::uint64_t epoch, std::uint64_t window) {
  loaded_ = UINT64_MAX;  // in case something below throws
  const bool drawn = order_ == CropOrder::kRandom;
  if (!drawn && (!of_documents_ || epoch_ != epoch)) {
    of_documents_.emplace(documents_ / block_, seed_, epoch);
    if (order_ == CropOrder::kBlocks)
      phase_ = uniform_draw(seed_ ^ kBlockPhaseSeed, 0, epoch, documents_);
  }
  epoch_ = epoch;
  const std::uint64_t first = window * window_, count = std::min(window_, documents_ - first);
  sorted_.clear();
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t slot = first + i;
    sorted_.push_back({document_at(slot), 0, static_cast<std::uint32_t>(i)});
  }
  find_lengths();
  std::ranges::sort(sorted_, {}, [](const Sorted& one) { return std::pair(one.length, one.slot); });
  arrange(epoch * windows_ + window);
  loaded_ = epoch * windows_ + window;
}

std::uint64_t WholeOrder::document_at(std::uint64_t slot) const {
  if (order_ == CropOrder::kRandom) {
    return uniform_draw(seed_, 0, epoch_ * documents_ + slot, documents_);
  }
  if (order_ != CropOrder::kBlocks) return (*of_documents_)(slot);
  // Full blocks, permuted, then the rest. The count begins at phase_ and wraps around at the end of
  // the stream.
  const std::uint64_t full = of_documents_->size() * block_;
  const std::uint64_t place =
      slot < full ? (*of_documents_)(slot / block_) * block_ + slot % block_ : slot;
  const std::uint64_t to_end = documents_ - phase_;
  return place < to_end ? phase_ + place : place - to_end;
}

// Looks up in the order of the index, so that neighbours are read together. The reader keeps the
// bounds, because batches of these documents need them next.
void WholeOrder::find_lengths() {
  std::ranges::sort(sorted_, {}, &Sorted::document);
  wanted_.clear();
  for (const Sorted& one : sorted_) wanted_.push_back(one.document);
  reader_.keep({});
  bounds_.clear();
  reader_.for_each_of(wanted_, [&](std::uint64_t start, std::uint64_t end) {
    Sorted& one = sorted_[bounds_.size()];
    one.length = static_cast<std::uint32_t>(std::min(columns_, end - start));
    bounds_.push_back({one.document, start, end});
  });
  reader_.keep(bounds_);
}

// If the documents do not fill all buckets, a random bucket is the short one, so that no length is
// last in an epoch more often than others. The short bucket comes last, so that buckets begin with
// steps.
void WholeOrder::arrange(std::uint64_t number) {
  const std::uint64_t count = sorted_.size(), full = count / bucket_, rest = count % bucket_;
  arranged_.resize(count);
  const std::uint64_t cut =
      rest == 0 ? full : uniform_draw(seed_ ^ kBucketsSeed, 1, number, full + 1);
  const std::uint64_t most = divide_up(window_, bucket_);  // buckets in a window
  const auto put = [&](std::uint64_t bucket, std::uint64_t from, std::uint64_t size,
                       std::uint64_t to) {
    const Permutation inside(size, seed_ ^ kInsideSeed, number * most + bucket);
    wanted_.resize(size);  // find_lengths is done with it
    inside.fill(0, 1, wanted_);
    for (std::uint64_t i = 0; i < size; ++i) {
      arranged_[to + wanted_[i]] = sorted_[from + i].document;
    }
  };
  if (full > 0) {
    const Permutation buckets(full, seed_ ^ kBucketsSeed, number);
    for (std::uint64_t i = 0; i < full; ++i) {
      put(i, i * bucket_ + (i >= cut ? rest : 0), bucket_, buckets(i) * bucket_);
    }
  }
  if (rest > 0) put(full, cut * bucket_, rest, full * bucket_);
}

}  // namespace evenkeel
