#include <sys/statvfs.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "evenkeel/bytes.h"
#include "evenkeel/prepare.h"
#include "prepare/buckets.h"
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
  const std::uint64_t block = for_blocks / (memory.buckets.buckets + Buckets::kSpareBlocks);
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

void require_room(const std::string& scratch, std::uint64_t bytes) {
  const std::size_t slash = scratch.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : scratch.substr(0, slash + 1);
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return;
  const std::uint64_t free = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (free >= bytes) return;
  throw Error::system("shuffle", ENOSPC,
                      "the scratch file takes " + format_size(bytes) + ", and the disk has " +
                          format_size(free) + " free")
      .in(scratch)
      .hint("free some space, or name a folder on another disk with --scratch");
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
    for (const std::string& path : options.input.paths) {
      struct stat in {
      }, out{};
      if (::stat(path.c_str(), &in) == 0 && ::stat(options.output.c_str(), &out) == 0 &&
          in.st_dev == out.st_dev && in.st_ino == out.st_ino) {
        throw Error(ErrorKind::kInvalid, "shuffle", "this is an input, too")
            .in(options.output)
            .hint("write to another name, and rename it afterwards");
      }
    }
  }

  WorkReport run() {
    Buckets buckets(scratch_path(), options_.resume);
    if (const auto& found = buckets.checkpoint()) {
      if (found->kind != kind_) {
        throw Error(ErrorKind::kInvalid, "resume",
                    "the unfinished work is another: other files, unit, seed or format")
            .in(options_.output)
            .hint("use the options of the first run, or begin again without --resume");
      }
      report_.resumed = true;
    } else if (options_.resume && finish_last_step()) {
      return report_;
    }
    const bool distributed = report_.resumed && buckets.checkpoint()->state == kAllDistributed;
    if (!distributed) distribute(buckets);
    const ItemKind like = source_->kind;
    source_.reset();  // with its memory
    write(buckets, like, distributed);
    return report_;
  }

 private:
  static constexpr std::string_view kAllDistributed = "all";

  std::string scratch_path() const {
    const std::string& out = options_.output;
    if (options_.scratch.empty()) return out + ".shuffle";
    return options_.scratch + "/" + out.substr(out.rfind('/') + 1) + ".shuffle";
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
    if (sink->state() != kind_ + "done") {
      sink->abort();
      return false;
    }
    sink->close();
    report_.resumed = true;
    report_.items = source_->estimated_items();
    report_.bytes = source_->bytes();
    report_.how = sink->how();
    return true;
  }

  void distribute(Buckets& buckets) {
    const std::uint64_t total = 2 * source_->bytes();
    const ShuffleMemory memory = divide(options_.budget, facts_, reading_);
    if (report_.resumed) {
      const std::string& state = buckets.checkpoint()->state;
      ItemPosition position;
      const char* const end = state.data() + state.size();
      const auto first = std::from_chars(state.data(), end, position.item);
      if (first.ptr < end) std::from_chars(first.ptr + 1, end, position.offset);
      source_->seek(position);
    } else {
      require_room(scratch_path(),
                   source_->bytes() + source_->estimated_items() * (StoredItem::kNumberBytes));
    }
    buckets.begin(options_.budget, memory.buckets);
    const ShuffleKeys keys{options_.seed};
    const std::uint64_t count = buckets.size().buckets;
    const bool same_length = source_->item_bytes() > 0;
    std::uint64_t saved = source_->position().offset, told = saved;
    for (;;) {
      const std::uint64_t number = source_->position().item;
      const auto item = source_->next();
      if (!item) break;
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
      buckets.add(bucket, {head, sizeof head - (same_length ? StoredItem::kLengthBytes : 0)});
      buckets.add(bucket, *item);
      const ItemPosition now = source_->position();
      if (now.offset - told >= 4_MiB) {
        told = now.offset;
        tell("distributing", told, total);
      }
      if (now.offset - saved >= options_.checkpoint_bytes) {
        saved = now.offset;
        buckets.save(kind_, std::to_string(now.item) + " " + std::to_string(now.offset));
      }
    }
    buckets.save(kind_, std::string(kAllDistributed));
    buckets.end_adding();
  }

  void write(Buckets& buckets, const ItemKind& like, bool resumed) {
    const std::uint64_t total = facts_.bytes;
    const ShuffleMemory memory = divide(options_.budget, facts_, reading_);
    // A budget of its own: what is left of the other is for sorting.
    const Reservation writing = options_.budget.reserve(memory.writing, "writing");
    const auto sink = create_items(options_.output, like, options_.format,
                                   write_options(Budget(memory.writing), resumed));
    std::uint64_t from = 0;
    const std::string& state = sink->state();
    if (state.starts_with(kind_)) {
      unsigned long long key = 0, items = 0, bytes = 0;
      std::sscanf(state.c_str() + kind_.size(), "%llu %llu %llu", &key, &items, &bytes);
      from = key, report_.items = items, report_.bytes = bytes;
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
    // From here on the output alone is needed; see finish_last_step.
    sink->checkpoint(kind_ + "done");
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
