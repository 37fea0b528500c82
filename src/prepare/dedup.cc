// Removes exact duplicates by 128-bit hashes, in three steps: hash, find, copy.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checked.h"
#include "base/memory.h"
#include "evenkeel/bytes.h"
#include "evenkeel/prepare.h"
#include "prepare/buckets.h"
#include "prepare/hash_set.h"
#include "prepare/input_files.h"
#include "prepare/items.h"
#include "remote/address.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kLeastDedupBudget = 16_MiB;

// What the first step stores for an item. Records of a part are in the order of the input.
struct HashRecord {
  Hash128 hash;
  std::uint64_t number = 0;
};
static_assert(sizeof(HashRecord) == 24);

std::uint64_t part_of(std::uint64_t high, std::uint64_t parts) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(high) * parts >> 64);
}

// How the budget is divided. All three steps have the reader. The first also has blocks of hashes;
// the second a table of hashes, a window and blocks of numbers; the third a bit for each of the
// next items, and the writer.
struct DedupMemory {
  explicit DedupMemory(std::uint64_t all)
      : reading(std::clamp<std::uint64_t>(all / 8, 2_MiB, 32_MiB)),
        blocks(all / 2),
        table(all / 2),
        window(2_MiB),
        number_blocks(all / 8),
        bits(std::min<std::uint64_t>(all / 4, 256_MiB)),
        writing(std::min<std::uint64_t>(32_MiB, all / 8)) {}
  std::uint64_t reading, blocks, table, window, number_blocks, bits, writing;
};

BucketSize bucket_size(std::uint64_t buckets, std::uint64_t memory, std::uint64_t most) {
  const std::uint64_t block = memory / (buckets + Buckets::kSpareBlocks + Buckets::kThreads);
  if (block < OutputFile::kAlignment) {
    throw Error(ErrorKind::kBudget, "dedup",
                with_commas(buckets) + " parts need a block of 4 KiB each, but the budget has " +
                    format_size(memory) + " for them")
        .hint("twice the budget is enough for four times as many items");
  }
  return {buckets, std::min(std::bit_floor(block), most)};
}

class Dedup {
 public:
  explicit Dedup(const DedupOptions& options) : options_(options), memory_(options.budget.limit()) {
    if (options.budget.limit() < kLeastDedupBudget) {
      throw Error(ErrorKind::kBudget, "dedup",
                  "the budget is " + format_size(options.budget.limit()) + "; the least is " +
                      format_size(kLeastDedupBudget));
    }
    source_ = open_items(options.input, options.budget, memory_.reading);
    kind_ = "dedup of " + std::string(item_unit_name(options.input.unit)) + " to " +
            options.format + " of\n" + source_->fingerprint();
    source_->require_apart_from(options.output, options.format);
    if (is_url(options.output)) {
      throw Error(ErrorKind::kInvalid, "dedup", "its outputs are files, not objects on a server")
          .in(options.output)
          .hint("write a file and copy it; convert, merge, sample and shuffle write to s3://");
    }
    require_output(options.output, source_->kind, options.format, {});
  }

  WorkReport run() {
    Buckets hashes(scratch(".dedup"), options_.resume);
    const auto& saved = hashes.checkpoint();
    if (saved) {
      if (saved->kind != kind_) throw other_work(options_.output);
      report_.resumed = true;
    } else if (options_.resume && finish_last_step()) {
      return report_;
    }
    std::optional<std::vector<std::uint64_t>> all;
    if (saved) all = state_numbers(saved->state, "", kAll, 1);
    const bool hashed = all.has_value();
    items_ = hashed ? all->front() : hash(hashes);
    Buckets found(scratch(".dedup2"), hashed);
    find(hashes, found);
    copy(hashes, found, hashed);
    return report_;
  }

 private:
  static constexpr std::string_view kAll = "all ";

  std::string scratch(std::string_view ending) const {
    return scratch_file(options_.output, options_.scratch, ending);
  }
  void show_progress(std::string_view step, std::uint64_t done) const {
    if (options_.progress) options_.progress({step, done, 2 * source_->bytes()});
  }
  std::unique_ptr<ItemSink> output(const Budget& budget, bool resume) const {
    return create_items(options_.output, source_->kind, options_.format,
                        {.budget = budget,
                         .checksums = options_.checksums,
                         .resume = resume,
                         .while_waiting = options_.while_waiting,
                         .expected_bytes = 0},
                        options_.input.unit != ItemUnit::kBlocks);
  }

  // Finishes a run that was killed after it removed the scratch files and before it renamed the
  // output.
  bool finish_last_step() {
    const auto sink = output(options_.budget, true);
    if (is_done(*sink, kind_)) {
      Buckets(scratch(".dedup2"), false).discard();
      return close_if_done(*sink, kind_, report_);
    }
    if (sink->resumed() && !state_numbers(sink->state(), kind_, "", 5)) {
      throw other_work(options_.output);
    }
    sink->abort();  // its scratch files no longer exist
    return false;
  }

  std::uint64_t hash(Buckets& hashes) {
    const std::uint64_t estimated = source_->estimated_items();
    ItemPosition at;
    if (report_.resumed) {
      const auto numbers = state_numbers(hashes.checkpoint()->state, "", "", 2);
      if (!numbers) throw other_work(options_.output);
      at = {(*numbers)[0], (*numbers)[1]};
      source_->seek(at);
    } else {
      require_room("dedup", scratch(".dedup"), estimated * sizeof(HashRecord));
    }
    const std::uint64_t fit = HashSet::most(memory_.table) / 10 * 8;  // parts differ in size
    const std::uint64_t parts = std::max<std::uint64_t>(1, divide_up(estimated, fit));
    hashes.begin(options_.budget, bucket_size(parts, memory_.blocks, 1_MiB));
    const std::uint64_t count = hashes.size().buckets;
    const std::uint64_t look = std::min<std::uint64_t>(4_MiB, options_.checkpoint_bytes);
    std::uint64_t saved = at.offset, since = 0;
    HashRecord record{.hash = {}, .number = source_->position().item};
    for (; const auto item = source_->next(); ++record.number) {
      record.hash = xxh3_128(*item);
      hashes.add(part_of(record.hash.high, count), std::as_bytes(std::span(&record, 1)));
      since += item->size();
      if (since < look) continue;
      since = 0;
      const ItemPosition now = source_->position();
      show_progress("hashing", now.offset);
      if (now.offset - saved < options_.checkpoint_bytes) continue;
      saved = now.offset;
      hashes.save(kind_, std::to_string(now.item) + " " + std::to_string(now.offset));
    }
    hashes.save(kind_, std::string(kAll) + std::to_string(record.number));
    hashes.end_adding();
    return record.number;
  }

  static Error wrong_item(std::uint64_t number, const Buckets& scratch) {
    return Error(ErrorKind::kFormat, "dedup",
                 "item " + with_commas(number) + " does not belong to this part")
        .in(scratch.path())
        .hint("the scratch file was changed: begin again without --resume");
  }

  // The number of items that each part of `found` covers.
  std::uint64_t items_of_part(const Buckets& found) const {
    return std::max<std::uint64_t>(1, items_ / found.size().buckets + 1);
  }

  void find(Buckets& hashes, Buckets& found) {
    std::uint64_t part = 0;
    if (const auto& saved = found.checkpoint()) {
      const auto numbers = state_numbers(saved->state, "", "", 1);
      if (saved->kind != kind_ || !numbers) throw other_work(options_.output);
      part = numbers->front();
    }
    const std::uint64_t parts = hashes.size().buckets, bits = memory_.bits * 8;
    if (part == parts) return;
    found.begin(options_.budget, bucket_size(std::max<std::uint64_t>(1, divide_up(items_, bits)),
                                             memory_.number_blocks, 256_KiB));
    HashSet seen(options_.budget, memory_.table);
    const PageBuffer window(options_.budget, memory_.window, "a window of the scratch file");
    const std::uint64_t per_part = items_of_part(found);
    std::uint64_t unsaved = 0;
    for (; part < parts; ++part) {
      show_progress("finding duplicates", source_->bytes());
      // If the hashes do not fit the table, they are searched in several turns, selected by the
      // first bits of the other half of the hash. It does no harm to find a number twice.
      for (unsigned turn_bits = 0;
           !find_in_turns(hashes, found, part, turn_bits, seen, window, per_part);) {
        ++turn_bits;
      }
      unsaved += hashes.bytes(part);
      if (part + 1 < parts && unsaved < options_.checkpoint_bytes) continue;
      unsaved = 0;
      found.save(kind_, std::to_string(part + 1));
    }
    found.end_adding();
  }

  // False if the table was too small.
  bool find_in_turns(Buckets& hashes, Buckets& found, std::uint64_t part, unsigned turn_bits,
                     HashSet& seen, const PageBuffer& window, std::uint64_t per_part) const {
    for (std::uint64_t turn = 0; turn < std::uint64_t{1} << turn_bits; ++turn) {
      seen.clear();
      // A window is a whole number of sectors and of records, so no record crosses its end.
      const std::uint64_t step =
          memory_.window / (OutputFile::kAlignment * 3) * (OutputFile::kAlignment * 3);
      for (std::uint64_t offset = 0; offset < hashes.bytes(part); offset += step) {
        const std::uint64_t bytes = hashes.read(part, offset, {window.data(), step});
        for (std::uint64_t at = 0; at + sizeof(HashRecord) <= bytes; at += sizeof(HashRecord)) {
          HashRecord record;
          std::memcpy(&record, window.data() + at, sizeof record);
          if (record.number >= items_) throw wrong_item(record.number, hashes);
          if (turn_bits > 0 && record.hash.low >> (64 - turn_bits) != turn) continue;
          if (seen.add(record.hash)) {
            if (seen.full()) return false;
            continue;
          }
          found.add(record.number / per_part, std::as_bytes(std::span(&record.number, 1)));
        }
      }
    }
    return true;
  }

  // Sets a bit for each duplicate of a part.
  void load_bits(Buckets& found, std::uint64_t part, std::uint64_t per_part, PageBuffer& bits,
                 const PageBuffer& window) const {
    std::memset(bits.data(), 0, bits.size());
    auto* const words = reinterpret_cast<std::uint64_t*>(bits.data());
    for (std::uint64_t offset = 0; offset < found.bytes(part); offset += window.size()) {
      const std::uint64_t bytes = found.read(part, offset, {window.data(), window.size()});
      for (std::uint64_t at = 0; at + sizeof(std::uint64_t) <= bytes; at += sizeof(std::uint64_t)) {
        std::uint64_t number = 0;
        std::memcpy(&number, window.data() + at, sizeof number);
        const std::uint64_t bit = number - part * per_part;
        if (number >= items_ || bit >= per_part) throw wrong_item(number, found);
        words[bit / 64] |= std::uint64_t{1} << bit % 64;
      }
    }
  }

  void copy(Buckets& hashes, Buckets& found, bool resume) {
    const Reservation writing = options_.budget.reserve(memory_.writing, "writing");
    const auto sink = output(Budget(memory_.writing), resume);
    if (is_done(*sink, kind_)) {
      hashes.discard();
      found.discard();
      close_if_done(*sink, kind_, report_);
      return;
    }
    ItemPosition at;
    if (sink->resumed()) {
      const auto numbers = state_numbers(sink->state(), kind_, "", 5);
      if (!numbers) throw other_work(options_.output);
      at = {(*numbers)[0], (*numbers)[1]};
      report_.items = (*numbers)[2], report_.bytes = (*numbers)[3];
      report_.duplicates = (*numbers)[4];
    }
    source_->seek(at);
    const std::uint64_t per_part = items_of_part(found), all = source_->bytes();
    const std::uint64_t look = std::min<std::uint64_t>(4_MiB, options_.checkpoint_bytes);
    PageBuffer bits(options_.budget, (per_part + 63) / 64 * 8, "which items are duplicates");
    const PageBuffer window(options_.budget, memory_.window, "a window of the scratch file");
    const auto* const words = reinterpret_cast<const std::uint64_t*>(bits.data());
    std::uint64_t saved = at.offset, since = 0, end = at.item / per_part * per_part;
    for (std::uint64_t number = at.item; const auto item = source_->next(); ++number) {
      if (number >= end) {
        load_bits(found, end / per_part, per_part, bits, window);
        end += per_part;
      }
      const std::uint64_t bit = number - (end - per_part);
      if (words[bit / 64] >> bit % 64 & 1) {
        ++report_.duplicates;
      } else {
        sink->add(*item);
        ++report_.items;
        report_.bytes += item->size();
      }
      since += item->size();
      if (since < look) continue;
      since = 0;
      const ItemPosition now = source_->position();
      show_progress("copying", all + now.offset);
      if (now.offset - saved < options_.checkpoint_bytes) continue;
      saved = now.offset;
      std::string state = kind_;
      for (const std::uint64_t value :
           {now.item, now.offset, report_.items, report_.bytes, report_.duplicates}) {
        state += (state.size() == kind_.size() ? "" : " ") + std::to_string(value);
      }
      sink->checkpoint(state);
    }
    report_.how = with_commas(hashes.size().buckets) +
                  (hashes.size().buckets == 1 ? " part" : " parts") +
                  " of hashes; output: " + sink->how();
    // From here on only the output is needed; see finish_last_step.
    sink->checkpoint(done_state(kind_, report_));
    hashes.discard();
    found.discard();
    sink->close();
  }

  const DedupOptions& options_;
  const DedupMemory memory_;
  std::unique_ptr<ItemSource> source_;
  std::string kind_;
  std::uint64_t items_ = 0;
  WorkReport report_;
};

}  // namespace

WorkReport dedup(const DedupOptions& options) { return Dedup(options).run(); }

}  // namespace evenkeel
