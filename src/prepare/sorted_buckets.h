// Returns the items of buckets in the order of their keys, in parts that fit in memory.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "base/mutex.h"
#include "evenkeel/error.h"
#include "order/philox.h"
#include "prepare/bucket_loader.h"
#include "prepare/buckets.h"

namespace evenkeel {

// The 128 random bits by which items are ordered.
struct ShuffleKeys {
  std::uint64_t seed = 0;
  Block of(std::uint64_t item) const {
    // An epoch that no order of the loaders uses, so none draws the same numbers.
    constexpr std::uint64_t kShuffle = 0x73687566666c6500;  // "shuffle"
    return philox(seed, kShuffle, Stream::kDraws, item);
  }
  static std::uint64_t bucket_of(std::uint64_t high, std::uint64_t buckets) {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(high) * buckets >> 64);
  }
  // The smallest key with bucket_of(key) == bucket.
  static std::uint64_t first_key(std::uint64_t bucket, std::uint64_t buckets) {
    const auto wide = (static_cast<unsigned __int128>(bucket) << 64) + buckets - 1;
    return static_cast<std::uint64_t>(wide / buckets);
  }
};

// In a bucket, an item is stored as its number (8 bytes), its length (4 bytes, only if items differ
// in length) and its bytes.
struct StoredItem {
  static constexpr std::uint64_t kNumberBytes = 8, kLengthBytes = 4;
  static constexpr std::uint64_t kEntryBytes = 16;  // in memory, for sorting
};

// Reads and sorts on its own threads, one part ahead of the caller.
class SortedBuckets {
 public:
  // Reserves two parts of `part_bytes` and a window. `item_bytes` is 0 if items differ in length.
  // Begins at the first key that is `from` or more, and ends before bucket `end`.
  SortedBuckets(BucketReader& buckets, const Budget& budget, std::uint64_t part_bytes,
                ShuffleKeys keys, std::uint64_t item_bytes, std::uint64_t from, std::uint64_t end);
  ~SortedBuckets();
  SortedBuckets(const SortedBuckets&) = delete;
  SortedBuckets& operator=(const SortedBuckets&) = delete;

  static std::uint64_t memory(std::uint64_t part_bytes) { return 2 * part_bytes + kWindow; }
  static constexpr std::uint64_t kWindow = 2 << 20;

  // One part: items in order, and the key at which the next part begins; none for the last part.
  struct Part {
    std::size_t count = 0;
    std::optional<std::uint64_t> next_key;
  };
  std::optional<Part> next() EXCLUDES(mutex_);  // valid until the next call; empty after the last
  std::span<const std::byte> item(std::size_t i) const;
  // Bytes from the item's beginning on that may be read, of this item and what lies behind it.
  std::uint64_t readable(std::span<const std::byte> item) const {
    return static_cast<std::uint64_t>(current_->memory.data() + current_->memory.size() -
                                      item.data());
  }

 private:
  struct Entry {
    std::uint64_t high;
    std::uint64_t place;  // offset of the item's number; its length and bytes follow
  };
  static_assert(sizeof(Entry) == StoredItem::kEntryBytes);
  // Items are at the front, as they are stored; entries are at the back.
  struct Arena {
    PageBuffer memory;
    Entry* entries = nullptr;  // the first entry; the last one ends with the memory
    std::size_t count = 0;
    std::optional<std::uint64_t> next_key;
    bool ready = false, last = false;
  };
  void work() EXCLUDES(mutex_);
  struct Range {  // of keys in one bucket
    std::uint64_t bucket, from, last;
  };
  std::uint64_t head_bytes() const {
    return StoredItem::kNumberBytes + (item_bytes_ > 0 ? 0 : StoredItem::kLengthBytes);
  }
  std::uint64_t length_of(const std::byte* head) const;
  std::uint64_t number_of(const std::byte* head) const;
  // The key of an item. Throws Error (kFormat) if it does not belong to this bucket.
  std::uint64_t key_of(const std::byte* head, std::uint64_t bucket) const;
  Error does_not_fit(std::uint64_t item_bytes) const;
  // False if not all items of the range fit.
  bool load(Arena& arena, const Range& range);
  bool load_whole(Arena& arena, const Range& range);     // for a bucket that fits as it is stored
  bool load_filtered(Arena& arena, const Range& range);  // otherwise; loads only the range
  void sort(Arena& arena, const Range& range) const;
  void sort_few(Entry* first, Entry* last, const std::byte* memory) const;
  void sort_by_bits(Entry* first, Entry* last, std::uint64_t base, unsigned bits,
                    const std::byte* memory) const;

  BucketReader& buckets_;
  const ShuffleKeys keys_;
  const std::uint64_t item_bytes_;
  const std::uint64_t from_, end_;
  PageBuffer window_;
  Arena arenas_[2];
  BucketLoader loader_;  // after arenas_, so that it is destroyed before the memory it reads into
  Arena* current_ = nullptr;
  unsigned turn_ = 0;  // the arenas are used alternately
  Mutex mutex_;
  CondVar changed_;
  bool ending_ GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace evenkeel
