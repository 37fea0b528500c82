// The samples of Megatron's GPTDataset, and their order: documents are shuffled, joined and cut
// into sequences, which are shuffled once more. See docs/orders.md.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/budget.h"
#include "evenkeel/tokens.h"

namespace evenkeel {

// NumPy's RandomState(seed).shuffle. Several shuffles use the same generator.
class NumpyShuffle {
 public:
  explicit NumpyShuffle(std::uint32_t seed) : twister_(seed) {}
  void operator()(std::span<std::uint32_t> values);

 private:
  std::uint32_t up_to(std::uint32_t most);

  std::mt19937 twister_;
};

// Where the documents of a Megatron file lie in its tokens (Megatron calls them sequences of the
// .idx). Takes 4.25 bytes per document from the budget. Immutable, so thread-safe.
class MegatronDocuments {
 public:
  // `tokens` is a whole file, or a slice that begins and ends with documents. Throws Error
  // (kInvalid) if it is not a single Megatron file, kBudget, and the errors of reading the .idx.
  explicit MegatronDocuments(const Tokens& tokens);

  std::uint64_t size() const { return lengths_.size(); }
  std::uint64_t tokens() const { return tokens_; }
  // The first token of a document, counted from the start of the slice.
  std::uint64_t start(std::uint64_t document) const;
  std::uint32_t length(std::uint64_t document) const { return lengths_[document]; }
  void prefetch(std::uint64_t document) const { __builtin_prefetch(&lengths_[document]); }

 private:
  static constexpr std::uint64_t kEvery = 32;
  Reservation share_;
  std::vector<std::uint32_t> lengths_;
  std::vector<std::uint64_t> starts_;  // of each kEvery-th document
  std::uint64_t tokens_ = 0;
};

// The samples of one file. Takes from the budget 4.125 bytes for each document of each epoch, and 4
// for each sample. Immutable, so thread-safe.
class MegatronSamples {
 public:
  // Has at least `samples` samples; 0 means one epoch. Throws Error (kInvalid, kBudget).
  MegatronSamples(const Tokens& tokens, std::uint64_t block_size, std::uint64_t samples,
                  std::uint32_t seed);

  std::uint64_t size() const { return shuffled_.size(); }
  std::uint64_t epochs() const { return epochs_; }
  // The number of the sample at a position below size(), as numbered before the last shuffle.
  std::uint64_t operator[](std::uint64_t position) const { return shuffled_[position]; }
  // Calls use(start, count) for each run of tokens of a sample, which has block_size + 1 tokens.
  template <class Use>
  void for_each_run(std::uint64_t sample, Use use) const {
    std::uint64_t left = block_size_ + 1;
    auto [entry, skip] = find(sample * block_size_);
    for (; left > 0; ++entry, skip = 0) {
      const std::uint32_t document = order_[entry];
      const std::uint64_t count = std::min<std::uint64_t>(documents_.length(document) - skip, left);
      if (count > 0) use(documents_.start(document) + skip, count);
      left -= count;
    }
  }
  std::uint64_t most_runs() const { return most_runs_; }  // of a sample

  // For tests: the document of each entry of the order, and the entry and offset at which a sample
  // begins. As in Megatron's index, the first sample begins at the first entry, empty or not.
  std::span<const std::uint32_t> document_order() const { return order_; }
  struct Place {
    std::uint64_t entry = 0, offset = 0;
  };
  Place place(std::uint64_t sample) const {
    return sample == 0 ? Place{} : find(sample * block_size_);
  }

 private:
  static constexpr std::uint64_t kEvery = 64;
  // The entry of the order that contains a token of the joined documents.
  Place find(std::uint64_t token) const;
  void count_tokens();

  const std::uint64_t block_size_;
  const MegatronDocuments documents_;
  std::uint64_t epochs_ = 1;
  Reservation share_;
  std::vector<std::uint32_t> order_;     // documents, epoch after epoch
  std::vector<std::uint64_t> before_;    // tokens before each kEvery-th entry
  std::vector<std::uint32_t> shuffled_;  // samples
  std::uint64_t most_runs_ = 1;
};

}  // namespace evenkeel
