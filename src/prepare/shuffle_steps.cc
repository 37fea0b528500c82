#include "prepare/shuffle_steps.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checked.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "prepare/input_files.h"
#include "remote/address.h"
#include "remote/upload.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kLeastShuffleBudget = 16_MiB;
constexpr std::uint64_t kLeastPart = 4_MiB;
constexpr std::uint64_t kHeader = 1_MiB;  // more than any header
constexpr std::string_view kAllDistributed = "all ";

// Adds small items to a sink many at a time. A call for each costs more than copying it.
class JoinedItems {
 public:
  explicit JoinedItems(ItemSink& sink) : sink_(sink), joins_(sink.joins()) {}

  // `readable`: bytes from the item's beginning on that may be read, the item's and more.
  void add(std::span<const std::byte> item, std::uint64_t readable) {
    if (!joins_ || item.size() > kMost) {
      flush();
      return sink_.add(item);
    }
    if (fill_ + kMost > sizeof bytes_) flush();
    copy(bytes_ + fill_, item, readable);
    fill_ += item.size();
  }
  void flush() {
    if (fill_ > 0) sink_.add({bytes_, fill_});
    fill_ = 0;
  }

 private:
  static constexpr std::size_t kMost = 256;

  // A copy of a fixed length, more than is needed, takes no branch for each length.
  static void copy(std::byte* to, std::span<const std::byte> item, std::uint64_t readable) {
    constexpr std::size_t kHalf = kMost / 2;
    if (readable < kMost) {
      std::memcpy(to, item.data(), item.size());
    } else if (item.size() <= kHalf) {
      std::memcpy(to, item.data(), kHalf);
    } else {
      std::memcpy(to, item.data(), kMost);
    }
  }

  ItemSink& sink_;
  const bool joins_;
  std::size_t fill_ = 0;
  std::byte bytes_[32 << 10];
};

}  // namespace

SourceFacts facts_of(const ItemSource& source) {
  return {source.bytes(), source.estimated_items(), source.item_bytes()};
}

ShuffleMemory::ShuffleMemory(const Budget& budget)
    : reading(std::clamp<std::uint64_t>(budget.limit() / 8, 2_MiB, 32_MiB)),
      writing(std::min<std::uint64_t>(32_MiB, budget.limit() / 8)),
      all_(budget.limit()),
      documents_(all_ / 32 + 512_KiB) {  // for the document index
  if (all_ < kLeastShuffleBudget) {
    throw Error(ErrorKind::kBudget, "shuffle",
                "the budget is " + format_size(all_) + "; the least is " +
                    format_size(kLeastShuffleBudget));
  }
  part = (all_ - reading - writing - documents_ - SortedBuckets::kWindow) / 2;
}

void ShuffleMemory::write_to(const std::string& output, std::uint64_t bytes) {
  if (!is_url(output)) return;
  writing = std::max(writing, Upload::least_budget(bytes + kHeader));
  const std::uint64_t others = reading + writing + documents_ + SortedBuckets::kWindow;
  if (all_ < others + 2 * kLeastPart) {
    // A larger budget has larger shares for reading and for documents.
    const std::uint64_t least = (others + 2 * kLeastPart) / 4 * 5;
    throw Error(ErrorKind::kBudget, "shuffle",
                "an upload of " + format_size(bytes) + " needs " + format_size(writing) +
                    " of the budget of " + format_size(all_) + ", which leaves too little to sort")
        .in(output)
        .hint("a budget of " + format_size(round_up(least, 1_MiB)) + " is enough");
  }
  part = (all_ - others) / 2;
}

WriteOptions shuffle_output(const ShuffleOptions& options, const Budget& budget, bool resume,
                            std::uint64_t bytes) {
  return {.budget = budget,
          .checksums = options.checksums,
          .resume = resume,
          .while_waiting = options.while_waiting,
          .expected_bytes = bytes + kHeader};
}

std::uint64_t ShuffleMemory::buckets(const SourceFacts& source) const {
  const std::uint64_t stored =
      source.bytes + source.items * (StoredItem::kNumberBytes + StoredItem::kLengthBytes +
                                     StoredItem::kEntryBytes);
  // Buckets differ in size. A bucket that is too large is read several times.
  const std::uint64_t usual = part / 10 * 8;
  return std::max<std::uint64_t>(1, divide_up(stored, usual));
}

std::uint64_t ShuffleMemory::block_bytes(const SourceFacts& source, std::uint64_t buckets) const {
  const std::uint64_t for_blocks = (all_ - reading - documents_) / 10 * 9;
  const std::uint64_t block = for_blocks / (buckets + Buckets::kSpareBlocks + Buckets::kThreads);
  if (block < OutputFile::kAlignment) {
    throw Error(ErrorKind::kBudget, "shuffle",
                format_size(source.bytes) + " are " + with_commas(buckets) + " parts of " +
                    format_size(source.bytes / buckets) + ", but the budget of " +
                    format_size(all_) + " has no room for a block of 4 KiB for each")
        .hint("twice the budget is enough for four times as much");
  }
  return std::min<std::uint64_t>(std::bit_floor(block), 1_MiB);
}

std::optional<Distributed> distributed(const Checkpoint& checkpoint) {
  if (const auto all = state_numbers(checkpoint.state, "", kAllDistributed, 1)) {
    return Distributed{true, {all->front(), 0}};
  }
  if (const auto at = state_numbers(checkpoint.state, "", "", 2)) {
    return Distributed{false, {(*at)[0], (*at)[1]}};
  }
  return std::nullopt;
}

std::uint64_t distribute_items(ItemSource& source, Buckets& buckets, const DistributeWork& work,
                               std::uint64_t end) {
  const std::uint64_t count = buckets.size().buckets;
  const bool same_length = source.item_bytes() > 0;
  const ItemPosition begin = source.position();
  std::uint64_t number = begin.item, saved = begin.offset, since = 0;
  for (; number < end; ++number) {
    const auto item = source.next();
    if (!item) break;
    const std::uint64_t bucket = ShuffleKeys::bucket_of(work.keys.of(number).high, count);
    std::byte head[StoredItem::kNumberBytes + StoredItem::kLengthBytes];
    std::memcpy(head, &number, sizeof number);
    if (!same_length) {
      if (item->size() > UINT32_MAX) {
        throw Error(ErrorKind::kInvalid, "shuffle",
                    "item " + with_commas(number) + " has " + with_commas(item->size()) +
                        " bytes; the limit is 4 GiB");
      }
      const auto length = static_cast<std::uint32_t>(item->size());
      std::memcpy(head + sizeof number, &length, sizeof length);
    }
    const std::size_t head_bytes = sizeof head - (same_length ? StoredItem::kLengthBytes : 0);
    buckets.add(bucket, {head, head_bytes}, *item);
    since += item->size();
    if (since < std::min<std::uint64_t>(4_MiB, work.checkpoint_bytes)) continue;
    since = 0;
    const ItemPosition now = source.position();
    work.progress(now.offset);
    if (now.offset - saved < work.checkpoint_bytes) continue;
    saved = now.offset;
    buckets.save(work.kind, std::to_string(now.item) + " " + std::to_string(now.offset));
  }
  buckets.save(work.kind, std::string(kAllDistributed) + std::to_string(number));
  buckets.end_adding();
  return number;
}

void write_sorted(BucketReader& buckets, ItemSink& sink, const Budget& budget,
                  const WriteWork& work, WorkReport& report) {
  const std::uint64_t count = buckets.count();
  std::uint64_t from = ShuffleKeys::first_key(work.begin, count), unsaved = 0;
  if (sink.resumed()) {
    const auto numbers = state_numbers(sink.state(), work.kind, "", 3);
    if (!numbers) throw other_work(work.output);
    from = (*numbers)[0], report.items = (*numbers)[1], report.bytes = (*numbers)[2];
    report.resumed = true;
  }
  SortedBuckets sorted(buckets, budget, work.part_bytes, work.keys, work.item_bytes, from,
                       work.end);
  JoinedItems joined(sink);
  while (const auto part = sorted.next()) {
    for (std::size_t i = 0; i < part->count; ++i) {
      const auto item = sorted.item(i);
      joined.add(item, sorted.readable(item));
      unsaved += item.size();
      report.bytes += item.size();
      if ((i & 4095) == 0) work.progress(report.bytes);
    }
    joined.flush();
    report.items += part->count;
    if (!part->next_key || unsaved < work.checkpoint_bytes || !sink.can_checkpoint()) continue;
    unsaved = 0;
    sink.checkpoint(work.kind + std::to_string(*part->next_key) + " " +
                    std::to_string(report.items) + " " + std::to_string(report.bytes));
    work.saved(ShuffleKeys::bucket_of(*part->next_key, count));
  }
}

}  // namespace evenkeel
