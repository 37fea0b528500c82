// The two passes of a shuffle, used on one machine (shuffle.cc) and in parts (shuffle_parts.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "evenkeel/prepare.h"
#include "prepare/buckets.h"
#include "prepare/items.h"
#include "prepare/sorted_buckets.h"

namespace evenkeel {

// Facts about a source, which may be closed already.
struct SourceFacts {
  std::uint64_t bytes = 0, items = 0, item_bytes = 0;
};
SourceFacts facts_of(const ItemSource& source);

// How the budget is divided. The first pass has blocks of buckets and a reader; the second has two
// parts to sort, a window and the writer.
struct ShuffleMemory {
  std::uint64_t reading = 0, writing = 0, part = 0;
  // Throws Error (kBudget) if the budget is below the minimum.
  explicit ShuffleMemory(const Budget& budget);
  // If the output is an object, leaves enough for an upload of `bytes` bytes. Throws Error
  // (kBudget) if that is too much.
  void write_to(const std::string& output, std::uint64_t bytes);
  // The number of buckets with which a bucket usually fits in a part.
  std::uint64_t buckets(const SourceFacts& source) const;
  // The size of blocks. Throws Error (kBudget) if the budget has no room for a block per bucket.
  std::uint64_t block_bytes(const SourceFacts& source, std::uint64_t buckets) const;

 private:
  std::uint64_t all_ = 0, documents_ = 0;
};

// The options for writing an output of `bytes` bytes.
WriteOptions shuffle_output(const ShuffleOptions& options, const Budget& budget, bool resume,
                            std::uint64_t bytes);

// The first pass: keys, checkpoints and progress.
struct DistributeWork {
  ShuffleKeys keys;
  std::string kind;  // of checkpoints
  std::uint64_t checkpoint_bytes = 0;
  std::function<void(std::uint64_t offset)> progress;
};
// Distributes the items from the current position of the source up to item `end`. Returns the
// number of the item after the last one.
std::uint64_t distribute_items(ItemSource& source, Buckets& buckets, const DistributeWork& work,
                               std::uint64_t end = UINT64_MAX);
// How far a checkpoint of the first pass is, and whether all items were distributed.
struct Distributed {
  bool all = false;
  ItemPosition at;  // the item after the last one; its offset is set only if `all` is false
};
std::optional<Distributed> distributed(const Checkpoint& checkpoint);

// The second pass, for buckets [begin, end).
struct WriteWork {
  ShuffleKeys keys;
  std::uint64_t item_bytes = 0, part_bytes = 0, begin = 0, end = 0;
  std::string kind, output;
  std::uint64_t checkpoint_bytes = 0;
  std::function<void(std::uint64_t bytes)> progress;
  std::function<void(std::uint64_t bucket)> saved;  // buckets before it are no longer needed
};
// Adds the items of the buckets to the sink, beginning at its checkpoint, and counts them in the
// report.
void write_sorted(BucketReader& buckets, ItemSink& sink, const Budget& budget,
                  const WriteWork& work, WorkReport& report);

}  // namespace evenkeel
