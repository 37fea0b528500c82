#include <algorithm>
#include <bit>
#include <cstring>

#include "evenkeel/bytes.h"
#include "evenkeel/prepare.h"
#include "prepare/buckets.h"
#include "prepare/input_files.h"
#include "prepare/items.h"
#include "prepare/sorted_buckets.h"

namespace evenkeel {
namespace {

// How a budget is divided. The first pass has blocks of buckets and a reader; the second has two
// parts to sort, a window and the writer.
struct ShuffleMemory {
  std::uint64_t writing = 0, part = 0;
  BucketSize buckets;
};

constexpr std::uint64_t kLeastShuffleBudget = 16_MiB;

// Of a source that may be closed already.
struct SourceFacts {
  std::uint64_t bytes = 0, items = 0, item_bytes = 0;
};

ShuffleMemory divide(const Budget& budget, const SourceFacts& source, std::uint64_t reading) {
  const std::uint64_t all = budget.limit();
  const std::uint64_t documents = all / 32 + 512_KiB;  // what looks them up
  ShuffleMemory memory;
  memory.writing = std::min<std::uint64_t>(32_MiB, all / 8);
  memory.part = (all - reading - memory.writing - documents - SortedBuckets::kWindow) / 2;
  const std::uint64_t stored =
      source.bytes + source.items * (StoredItem::kNumberBytes + StoredItem::kLengthBytes +
                                     StoredItem::kEntryBytes);
  // Buckets differ in size; one that is too large is read several times.
  const std::uint64_t usual = memory.part / 10 * 8;
  memory.buckets.buckets = std::max<std::uint64_t>(1, (stored + usual - 1) / usual);
  const std::uint64_t for_blocks = (all - reading - documents) / 10 * 9;
  const std::uint64_t block =
      for_blocks / (memory.buckets.buckets + Buckets::kSpareBlocks + Buckets::kThreads);
  if (block < OutputFile::kAlignment) {
    throw Error(ErrorKind::kBudget, "shuffle",
                format_size(source.bytes) + " are " + with_commas(memory.buckets.buckets) +
                    " parts of " + format_size(usual) + ", and the budget of " + format_size(all) +
                    " holds no block of 4 KiB for each")
        .hint("twice the budget shuffles four times as much");
  }
  memory.buckets.block_bytes = std::min<std::uint64_t>(std::bit_floor(block), 1_MiB);
  return memory;
}

class Shuffle {
 public:
  explicit Shuffle(const ShuffleOptions& options)
      : options_(options),
        reading_(std::clamp<std::uint64_t>(options.budget.limit() / 8, 2_MiB, 32_MiB)) {
    if (options.budget.limit() < kLeastShuffleBudget) {
      throw Error(ErrorKind::kBudget, "shuffle",
                  "the budget is " + format_size(options.budget.limit()) + "; the least is " +
                      format_size(kLeastShuffleBudget));
    }
    source_ = open_items(options.input, options.budget, reading_);
    facts_ = {source_->bytes(), source_->estimated_items(), source_->item_bytes()};
    kind_ = "shuffle of " + std::string(item_unit_name(options.input.unit)) + " by seed " +
            std::to_string(options.seed) + " to " + options.format + " of\n" +
            source_->fingerprint();
    source_->require_apart_from(options.output, options.format);
  }

  WorkReport run() {
    Buckets buckets(scratch_path(), options_.resume);
    if (const auto& found = buckets.checkpoint()) {
      if (found->kind != kind_) throw other_work(options_.output);
      report_.resumed = true;
    } else if (options_.resume && finish_last_step()) {
      return report_;
    }
    std::optional<std::vector<std::uint64_t>> all;
    if (report_.resumed) all = state_numbers(buckets.checkpoint()->state, "", kAllDistributed, 1);
    const bool distributed = all.has_value();
    const std::uint64_t items = distributed ? all->front() : distribute(buckets);
    const ItemKind like = source_->kind;
    source_.reset();  // with its memory
    write(buckets, like, distributed, items);
    return report_;
  }

 private:
  static constexpr std::string_view kAllDistributed = "all ";

  std::string scratch_path() const {
    return scratch_file(options_.output, options_.scratch, ".shuffle");
  }
  void tell(std::string_view step, std::uint64_t done, std::uint64_t total) const {
    if (options_.progress) options_.progress({step, done, total});
  }
  WriteOptions write_options(const Budget& budget, bool resume) const {
    return {
        .budget = budget, .checksums = options_.checksums, .resume = resume, .while_waiting = {}};
  }

  // A run that was killed between the removal of the scratch file and the naming of the output.
  bool finish_last_step() {
    const auto sink = create_items(options_.output, source_->kind, options_.format,
                                   write_options(options_.budget, true));
    if (close_if_done(*sink, kind_, report_)) return true;
    if (sink->resumed() && !state_numbers(sink->state(), kind_, "", 3)) {
      throw other_work(options_.output);
    }
    sink->abort();  // its scratch file is gone
    return false;
  }

  // How many items there are.
  std::uint64_t distribute(Buckets& buckets) {
    const std::uint64_t total = 2 * source_->bytes();
    const ShuffleMemory memory = divide(options_.budget, facts_, reading_);
    if (report_.resumed) {
      const auto at = state_numbers(buckets.checkpoint()->state, "", "", 2);
      if (!at) throw other_work(options_.output);
      source_->seek({(*at)[0], (*at)[1]});
    } else {
      require_room("shuffle", scratch_path(),
                   source_->bytes() + source_->estimated_items() * (StoredItem::kNumberBytes));
    }
    buckets.begin(options_.budget, memory.buckets);
    const ShuffleKeys keys{options_.seed};
    const std::uint64_t count = buckets.size().buckets;
    const bool same_length = source_->item_bytes() > 0;
    const ItemPosition begin = source_->position();
    std::uint64_t number = begin.item, saved = begin.offset, since = 0;
    for (; const auto item = source_->next(); ++number) {
      const std::uint64_t bucket = ShuffleKeys::bucket_of(keys.of(number).high, count);
      std::byte head[StoredItem::kNumberBytes + StoredItem::kLengthBytes];
      std::memcpy(head, &number, sizeof number);
      if (!same_length) {
        if (item->size() > UINT32_MAX) {
          throw Error(ErrorKind::kInvalid, "shuffle",
                      "item " + with_commas(number) + " has " + with_commas(item->size()) +
                          " bytes; 4 GiB is the most");
        }
        const auto length = static_cast<std::uint32_t>(item->size());
        std::memcpy(head + sizeof number, &length, sizeof length);
      }
      const std::size_t head_bytes = sizeof head - (same_length ? StoredItem::kLengthBytes : 0);
      buckets.add(bucket, {head, head_bytes}, *item);
      since += item->size();
      if (since < std::min<std::uint64_t>(4_MiB, options_.checkpoint_bytes)) continue;
      since = 0;
      const ItemPosition now = source_->position();
      tell("distributing", now.offset, total);
      if (now.offset - saved < options_.checkpoint_bytes) continue;
      saved = now.offset;
      buckets.save(kind_, std::to_string(now.item) + " " + std::to_string(now.offset));
    }
    const std::uint64_t items = source_->position().item;
    buckets.save(kind_, std::string(kAllDistributed) + std::to_string(items));
    buckets.end_adding();
    return items;
  }

  void write(Buckets& buckets, const ItemKind& like, bool resumed, std::uint64_t items) {
    const std::uint64_t total = facts_.bytes;
    const ShuffleMemory memory = divide(options_.budget, facts_, reading_);
    // A budget of its own: what is left of the other is for sorting.
    const Reservation writing = options_.budget.reserve(memory.writing, "writing");
    const auto sink = create_items(options_.output, like, options_.format,
                                   write_options(Budget(memory.writing), resumed));
    std::uint64_t from = 0;
    if (is_done(*sink, kind_)) {
      buckets.discard();
      close_if_done(*sink, kind_, report_);
      return;
    }
    if (sink->resumed()) {
      const auto numbers = state_numbers(sink->state(), kind_, "", 3);
      if (!numbers) throw other_work(options_.output);
      from = (*numbers)[0], report_.items = (*numbers)[1], report_.bytes = (*numbers)[2];
    }
    std::uint64_t unsaved = 0;
    std::uint64_t freed = ShuffleKeys::bucket_of(from, buckets.size().buckets);
    {
      SortedBuckets sorted(buckets, options_.budget, memory.part, {options_.seed},
                           facts_.item_bytes, from);
      while (const auto part = sorted.next()) {
        for (std::size_t i = 0; i < part->count; ++i) {
          const auto item = sorted.item(i);
          sink->add(item);
          unsaved += item.size();
          report_.bytes += item.size();
          if ((i & 4095) == 0) tell("writing", total + std::min(report_.bytes, total), 2 * total);
        }
        report_.items += part->count;
        if (!part->next_key || unsaved < options_.checkpoint_bytes) continue;
        unsaved = 0;
        sink->checkpoint(kind_ + std::to_string(*part->next_key) + " " +
                         std::to_string(report_.items) + " " + std::to_string(report_.bytes));
        const std::uint64_t whole = ShuffleKeys::bucket_of(*part->next_key, buckets.size().buckets);
        for (; freed < whole; ++freed) buckets.free(freed);
      }
    }
    report_.how = with_commas(buckets.size().buckets) + " parts of about " +
                  format_size(total / buckets.size().buckets) + ", blocks of " +
                  format_size(buckets.size().block_bytes) + "; output: " + sink->how();
    if (report_.items != items) {
      throw Error(ErrorKind::kFormat, "shuffle",
                  with_commas(items) + " items were distributed, and " +
                      with_commas(report_.items) + " were written")
          .in(scratch_path())
          .hint("the scratch file was changed: begin again without --resume");
    }
    // From here on the output alone is needed; see finish_last_step.
    sink->checkpoint(done_state(kind_, report_));
    buckets.discard();
    sink->close();
  }

  const ShuffleOptions& options_;
  const std::uint64_t reading_;
  std::unique_ptr<ItemSource> source_;
  SourceFacts facts_;
  std::string kind_;
  WorkReport report_;
};

}  // namespace

WorkReport shuffle(const ShuffleOptions& options) { return Shuffle(options).run(); }

}  // namespace evenkeel
