// Copies items from files to files: convert, merge, mix, split, sample.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/number.h"
#include "base/text_file.h"
#include "evenkeel/bytes.h"
#include "evenkeel/order.h"
#include "evenkeel/prepare.h"
#include "prepare/convert_elements.h"
#include "prepare/input_files.h"
#include "prepare/items.h"
#include "prepare/mixed_items.h"
#include "remote/address.h"
#include "write/output_file.h"

namespace evenkeel {
namespace {

// Selects `wanted` items of a sequence. Every subset of that size is equally likely (selection
// sampling, Knuth's algorithm S). The seed alone determines the result.
class Selection {
 public:
  Selection(std::uint64_t items, std::uint64_t wanted, std::uint64_t seed)
      : items_(items), wanted_(std::min(items, wanted)), seed_(seed) {}
  // Must be called for item 0, 1, 2, ...
  bool takes(std::uint64_t item) {
    constexpr std::uint64_t kSample = 0x73616d706c650000;  // "sample": its own epoch
    if (uniform_draw(seed_, kSample, item, items_ - item) >= wanted_ - taken_) return false;
    ++taken_;
    return true;
  }
  bool done() const { return taken_ == wanted_; }

 private:
  const std::uint64_t items_, wanted_, seed_;
  std::uint64_t taken_ = 0;
};

std::string shard_name(const std::string& pattern, std::uint64_t shard) {
  const std::size_t place = pattern.find("{}");
  char digits[24];
  std::snprintf(digits, sizeof digits, "%05llu", static_cast<unsigned long long>(shard));
  return pattern.substr(0, place) + digits + pattern.substr(place + 2);
}

class Copy {
 public:
  explicit Copy(const CopyOptions& options)
      : options_(options),
        // An upload needs more memory than a file.
        reading_(std::clamp<std::uint64_t>(
            options.budget.limit() / (is_url(options.output) ? 4 : 2), 1_MiB, 32_MiB)),
        source_(open_source(options, reading_, before_)),
        from_(source_->kind.tokens ? source_->kind.tokens->dtype : source_->kind.array.dtype),
        convert_(from_, options.dtype.value_or(from_), options.budget) {
    total_ = before_ + source_->bytes();
    if (options.dtype) {
      source_->kind.array.dtype = *options.dtype;
      if (*options.dtype != from_) source_->kind.array.descr.clear();
      if (source_->kind.tokens) source_->kind.tokens->dtype = *options.dtype;
    }
    if (!options.array_format.empty()) source_->kind.array.format = options.array_format;
    kind_ = "copy of " + std::string(item_unit_name(options.input.unit)) + " " + options.output +
            " " + options.format + options.array_format + " " +
            options.dtype.value_or(from_).name() + " sample " +
            std::to_string(options.sample.value_or(0)) + " by seed " +
            std::to_string(options.seed) + " shares";
    for (const double share : options.shares) kind_ += " " + number_text(share);
    kind_ += " of\n" + source_->fingerprint();
    for (std::uint64_t shard = 0; shard < std::max<std::size_t>(1, options.shares.size());
         ++shard) {
      source_->require_apart_from(output_of(shard), options.format);
    }
  }

  static void check_parts(const CopyOptions& options) {
    for (const double share : options.shares) {
      if (std::isfinite(share) && share > 0) continue;
      throw Error(ErrorKind::kInvalid, "split", "the share of a part must be above 0");
    }
    if (options.shares.size() > 1 && is_url(options.output)) {
      throw Error(ErrorKind::kInvalid, "split", "parts must be files, not objects on a server")
          .in(options.output)
          .hint("split into files and copy them; a single part can be written to s3://");
    }
    const bool pattern = options.output.find("{}") != std::string::npos;
    if (options.shares.size() > 1 && !pattern) {
      throw Error(ErrorKind::kInvalid, "split", "the name of the outputs must contain {}")
          .in(options.output)
          .hint("part_{}.npy becomes part_00000.npy, part_00001.npy, ...");
    }
  }

  WorkReport run() {
    if (options_.sample) select();
    std::vector<std::uint64_t> ends = shard_ends();
    std::uint64_t shard = finished_shards();
    report_.resumed = shard > 0;
    if (ends.size() > 1 && !options_.resume) remove_replaced(state_path());
    for (; shard < ends.size(); ++shard) {
      copy_shard(shard, ends[shard]);
      if (ends.size() > 1) replace_file(state_path(), kind_ + finished_text());
    }
    if (ends.size() > 1) remove_replaced(state_path());
    return report_;
  }

 private:
  // `counted`: bytes of lines that had to be counted before.
  static std::unique_ptr<ItemSource> open_source(const CopyOptions& options, std::uint64_t reading,
                                                 std::uint64_t& counted) {
    if (options.sets.empty()) {
      return open_items(options.input, options.budget, reading, group_bytes(options));
    }
    const auto count = [&options, &counted](std::uint64_t done, std::uint64_t all) {
      counted = all;
      // What is mixed afterwards is not known yet, but it is about as much.
      if (options.progress) options.progress({"counting", done, 2 * all});
    };
    return open_mixed(options.input, options.sets, options.repeat, options.budget, reading, count);
  }

  // Rows are copied in groups, but sampled and split one by one.
  static std::uint64_t group_bytes(const CopyOptions& options) {
    return options.sample || options.shares.size() > 1 ? 0 : 64_KiB;
  }

  std::string output_of(std::uint64_t shard) const {
    return options_.shares.size() > 1 ? shard_name(options_.output, shard) : options_.output;
  }
  std::string state_path() const { return shard_name(options_.output, 0) + ".split"; }

  // An item belongs to the shard that contains its first byte.
  std::vector<std::uint64_t> shard_ends() const {
    double sum = 0, so_far = 0;
    for (const double share : options_.shares) sum += share;
    std::vector<std::uint64_t> ends;
    for (const double share : options_.shares) {
      so_far += share;
      ends.push_back(static_cast<std::uint64_t>(
          std::llround(so_far / sum * static_cast<double>(source_->bytes()))));
    }
    if (ends.empty()) ends.push_back(0);
    ends.back() = UINT64_MAX;
    return ends;
  }

  // After a shard: where the next one begins, the bytes so far, and the items of each shard.
  std::string finished_text() const {
    std::string text = std::to_string(end_of_last_.item) + " " +
                       std::to_string(end_of_last_.offset) + " " + std::to_string(report_.bytes);
    for (const WorkOutput& one : report_.outputs) text += " " + std::to_string(one.items);
    return text;
  }
  std::uint64_t finished_shards() {
    if (!options_.resume || options_.shares.size() < 2) return 0;
    const auto text = read_text_file(state_path());
    if (!text) return 0;
    constexpr std::size_t kBefore = 3;
    const auto numbers = state_numbers(*text, kind_, "");
    if (!numbers || numbers->size() <= kBefore ||
        numbers->size() - kBefore > options_.shares.size()) {
      throw other_work(options_.output);
    }
    end_of_last_ = {(*numbers)[0], (*numbers)[1]};
    report_.bytes = (*numbers)[2];
    for (std::size_t i = kBefore; i < numbers->size(); ++i) {
      report_.items += (*numbers)[i];
      report_.outputs.push_back({output_of(i - kBefore), (*numbers)[i]});
    }
    return numbers->size() - kBefore;
  }

  void select() {
    std::uint64_t items = source_->estimated_items();
    if (options_.input.unit == ItemUnit::kLines && options_.sets.empty()) {  // must be counted
      total_ = 2 * source_->bytes();
      for (items = 0; source_->next(); ++items) {
        show_progress("counting", source_->position().offset);
      }
      before_ = source_->bytes();
      source_->seek({});
    }
    items_ = items;
  }

  void show_progress(std::string_view step, std::uint64_t offset) {
    if (!options_.progress || offset - reported_ < 4_MiB) return;
    reported_ = offset;
    options_.progress({step, before_ + offset, total_});
  }

  void copy_shard(std::uint64_t shard, std::uint64_t end) {
    const std::string path = output_of(shard);
    const auto sink = create_items(path, source_->kind, options_.format,
                                   {.budget = options_.budget,
                                    .checksums = options_.checksums,
                                    .resume = options_.resume,
                                    .while_waiting = options_.while_waiting,
                                    .expected_bytes = expected_bytes()},
                                   options_.input.unit != ItemUnit::kBlocks);
    ItemPosition at = end_of_last_;
    std::uint64_t items = 0;
    if (sink->resumed()) {
      const auto numbers = state_numbers(sink->state(), kind_, "", 4);
      if (!numbers) throw other_work(path);
      at = {(*numbers)[0], (*numbers)[1]}, items = (*numbers)[2];
      report_.bytes = (*numbers)[3];
      report_.resumed = true;
    }
    source_->seek(at);
    reported_ = at.offset;
    std::uint64_t saved = at.offset;
    std::optional<Selection> selection;
    if (options_.sample) {
      selection.emplace(items_, *options_.sample, options_.seed);
      for (std::uint64_t i = 0; i < at.item; ++i) selection->takes(i);
    }
    for (;;) {
      const ItemPosition now = source_->position();
      if (now.offset >= end || (selection && selection->done())) break;
      if (selection && !skip_unwanted(*selection, now)) break;
      const auto item = source_->next();
      if (!item) break;
      sink->add(convert_(*item));
      items += source_->kind.row_bytes > 0 ? item->size() / source_->kind.row_bytes : 1;
      report_.bytes += item->size();
      const ItemPosition next = source_->position();
      show_progress("copying", next.offset);
      if (next.offset - saved < options_.checkpoint_bytes || !sink->can_checkpoint()) continue;
      saved = next.offset;
      sink->checkpoint(kind_ + std::to_string(next.item) + " " + std::to_string(next.offset) + " " +
                       std::to_string(items) + " " + std::to_string(report_.bytes));
    }
    end_of_last_ = source_->position();
    report_.how = sink->how();
    sink->close();
    report_.items += items;
    report_.outputs.push_back({path, items});
  }

  // The size of the output if everything is copied; 0 if unknown.
  std::uint64_t expected_bytes() const {
    if (!options_.sets.empty() || options_.sample || options_.shares.size() > 1) return 0;
    constexpr std::uint64_t kHeader = 1_MiB;  // more than any header
    return source_->bytes() / from_.size * options_.dtype.value_or(from_).size + kHeader;
  }

  // Moves to the next selected item. False if there is none.
  bool skip_unwanted(Selection& selection, const ItemPosition& now) {
    const std::uint64_t size = source_->item_bytes();
    std::uint64_t item = now.item;
    while (item < items_ && !selection.takes(item)) {
      ++item;
      // Items of equal length are skipped without reading them.
      if (size == 0 && !source_->next()) return false;
      show_progress("copying", size > 0 ? item * size : source_->position().offset);
    }
    if (item == items_) return false;
    if (size > 0 && item != now.item) source_->seek({item, item * size});
    return true;
  }

  const CopyOptions& options_;
  const std::uint64_t reading_;
  // Of progress: bytes of all passes, and of those before this one.
  std::uint64_t total_ = 0, before_ = 0;
  std::unique_ptr<ItemSource> source_;
  const DType from_;
  ElementConverter convert_;
  std::string kind_;
  std::uint64_t items_ = 0, reported_ = 0;
  ItemPosition end_of_last_;  // where the next shard begins
  WorkReport report_;
};

}  // namespace

WorkReport copy_items(const CopyOptions& options) {
  Copy::check_parts(options);
  if (options.dtype && options.input.unit == ItemUnit::kLines) {
    throw Error(ErrorKind::kInvalid, "convert",
                "lines of text have no element type; " + options.dtype->name() + " was given")
        .in(options.output)
        .hint("choose the unit rows if the files hold numbers");
  }
  return Copy(options).run();
}

}  // namespace evenkeel
