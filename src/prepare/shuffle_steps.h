// The two passes of a shuffle: on one machine (shuffle.cc), and in parts (shuffle_parts.cc).
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

// Of a source that may be closed already.
struct SourceFacts {
  std::uint64_t bytes = 0, items = 0, item_bytes = 0;
};
SourceFacts facts_of(const ItemSource& source);

// How a budget is divided. The first pass has blocks of buckets and a reader; the second has two
// parts to sort, a window and the writer.
struct ShuffleMemory {
  std::uint64_t reading = 0, writing = 0, part = 0;
  // Throws Error (kBudget) where the budget is below the least.
  explicit ShuffleMemory(const Budget& budget);
  // Leaves enough for an upload of so many bytes, where the output is an object. Throws Error
  // (kBudget) where that is too much.
  void write_to(const std::string& output, std::uint64_t bytes);
  // So many that one usually fits a part.
  std::uint64_t buckets(const SourceFacts& source) const;
  // Throws Error (kBudget) if the budget does not hold a block for each.
  std::uint64_t block_bytes(const SourceFacts& source, std::uint64_t buckets) const;

 private:
  std::uint64_t all_ = 0, documents_ = 0;
};

// How the output of so many bytes is written.
WriteOptions shuffle_output(const ShuffleOptions& options, const Budget& budget, bool resume,
                            std::uint64_t bytes);

// What is saved of the first pass, and how far it is.
struct DistributeWork {
  ShuffleKeys keys;
  std::string kind;  // of checkpoints
  std::uint64_t checkpoint_bytes = 0;
  std::function<void(std::uint64_t offset)> tell;
};
// Distributes the items from where the source stands up to item `end`. Returns the number of the
// item behind the last one.
std::uint64_t distribute_items(ItemSource& source, Buckets& buckets, const DistributeWork& work,
                               std::uint64_t end = UINT64_MAX);
// Where a checkpoint of the first pass stands, and whether all was distributed.
struct Distributed {
  bool all = false;
  ItemPosition at;  // the item behind the last one; its offset only where `all` is false
};
std::optional<Distributed> distributed(const Checkpoint& checkpoint);

// The second pass, of buckets up to `end`.
struct WriteWork {
  ShuffleKeys keys;
  std::uint64_t item_bytes = 0, part_bytes = 0, begin = 0, end = 0;
  std::string kind, output;
  std::uint64_t checkpoint_bytes = 0;
  std::function<void(std::uint64_t bytes)> tell;
  std::function<void(std::uint64_t bucket)> saved;  // buckets before this are not needed any more
};
// Adds the items of the buckets to the sink, from its checkpoint on, and counts them in the report.
void write_sorted(BucketReader& buckets, ItemSink& sink, const Budget& budget,
                  const WriteWork& work, WorkReport& report);

}  // namespace evenkeel
