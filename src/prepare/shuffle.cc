#include "evenkeel/bytes.h"
#include "evenkeel/prepare.h"
#include "prepare/input_files.h"
#include "prepare/shuffle_steps.h"
#include "remote/address.h"
#include "remote/upload.h"

namespace evenkeel {
namespace {

class Shuffle {
 public:
  explicit Shuffle(const ShuffleOptions& options) : options_(options), memory_(options.budget) {
    source_ = open_items(options.input, options.budget, memory_.reading);
    facts_ = facts_of(*source_);
    kind_ = "shuffle of " + std::string(item_unit_name(options.input.unit)) + " by seed " +
            std::to_string(options.seed) + " to " + options.format + " of\n" +
            source_->fingerprint();
    source_->require_apart_from(options.output, options.format);
    if (is_url(options.output) && options.scratch.empty()) {
      throw Error(ErrorKind::kInvalid, "shuffle", "the scratch file cannot lie beside an object")
          .in(options.output)
          .hint("name a folder on a disk: --scratch DIR");
    }
    // Report errors of the output now, not after everything was read.
    memory_.write_to(options.output, facts_.bytes);
    require_output(options.output, source_->kind, options.format,
                   write_options(options.budget, false));
    if (is_url(options.output)) Upload::try_out(options.output, options.while_waiting);
  }

  WorkReport run() {
    Buckets buckets(scratch_path(), options_.resume);
    std::optional<Distributed> found;
    if (const auto& checkpoint = buckets.checkpoint()) {
      found = distributed(*checkpoint);
      if (checkpoint->kind != kind_ || !found) throw other_work(options_.output);
      report_.resumed = true;
    } else if (options_.resume && !is_url(options_.output) && finish_last_step()) {
      return report_;
    }
    const bool all = found && found->all;
    const std::uint64_t items = all ? found->at.item : distribute(buckets, found);
    const ItemKind like = source_->kind;
    source_.reset();  // frees its memory
    write(buckets, like, all, items);
    return report_;
  }

 private:
  std::string scratch_path() const {
    return scratch_file(options_.output, options_.scratch, ".shuffle");
  }
  void show_progress(std::string_view step, std::uint64_t done) const {
    if (options_.progress) options_.progress({step, done, 2 * facts_.bytes});
  }
  WriteOptions write_options(const Budget& budget, bool resume) const {
    return shuffle_output(options_, budget, resume, facts_.bytes);
  }

  // Finishes a run that was killed after it removed the scratch file and before it renamed the
  // output.
  bool finish_last_step() {
    const auto sink = create_items(options_.output, source_->kind, options_.format,
                                   write_options(options_.budget, true));
    if (close_if_done(*sink, kind_, report_)) return true;
    if (sink->resumed() && !state_numbers(sink->state(), kind_, "", 3)) {
      throw other_work(options_.output);
    }
    sink->abort();  // its scratch file no longer exists
    return false;
  }

  // Returns the number of items.
  std::uint64_t distribute(Buckets& buckets, const std::optional<Distributed>& found) {
    BucketSize size;
    if (found) {
      source_->seek(found->at);
    } else {
      size.buckets = memory_.buckets(facts_);
      size.block_bytes = memory_.block_bytes(facts_, size.buckets);
      require_room("shuffle", scratch_path(),
                   facts_.bytes + facts_.items * StoredItem::kNumberBytes);
    }
    buckets.begin(options_.budget, size);
    return distribute_items(
        *source_, buckets,
        {{options_.seed}, kind_, options_.checkpoint_bytes, [this](std::uint64_t offset) {
           show_progress("distributing", offset);
         }});
  }

  void write(Buckets& buckets, const ItemKind& like, bool resumed, std::uint64_t items) {
    // The writer has its own budget; the rest of the other is for sorting.
    const Reservation writing = options_.budget.reserve(memory_.writing, "writing");
    const auto sink =
        create_items(options_.output, like, options_.format,
                     write_options(Budget(memory_.writing), resumed && !is_url(options_.output)));
    if (is_done(*sink, kind_)) {
      buckets.discard();
      close_if_done(*sink, kind_, report_);
      return;
    }
    const std::uint64_t count = buckets.size().buckets;
    std::uint64_t freed = 0;
    WriteWork work;
    work.keys = {options_.seed};
    work.item_bytes = facts_.item_bytes, work.part_bytes = memory_.part;
    work.end = count;
    work.kind = kind_, work.output = options_.output;
    work.checkpoint_bytes = options_.checkpoint_bytes;
    work.progress = [this](std::uint64_t bytes) {
      show_progress("writing", facts_.bytes + std::min(bytes, facts_.bytes));
    };
    work.saved = [&](std::uint64_t bucket) {
      for (; freed < bucket; ++freed) buckets.free(freed);
    };
    write_sorted(buckets, *sink, options_.budget, work, report_);
    report_.how = with_commas(count) + (count == 1 ? " part of " : " parts of about ") +
                  format_size(facts_.bytes / count) + ", blocks of " +
                  format_size(buckets.size().block_bytes) + "; output: " + sink->how();
    if (report_.items != items) {
      throw Error(ErrorKind::kFormat, "shuffle",
                  with_commas(items) + " items were distributed, but " +
                      with_commas(report_.items) + " were written")
          .in(scratch_path())
          .hint("the scratch file was changed: begin again without --resume");
    }
    // From here on only the output is needed; see finish_last_step.
    if (sink->can_checkpoint()) {
      sink->checkpoint(done_state(kind_, report_));
      buckets.discard();
    }
    sink->close();
    buckets.discard();
  }

  const ShuffleOptions& options_;
  ShuffleMemory memory_;
  std::unique_ptr<ItemSource> source_;
  SourceFacts facts_;
  std::string kind_;
  WorkReport report_;
};

}  // namespace

WorkReport shuffle(const ShuffleOptions& options) { return Shuffle(options).run(); }

}  // namespace evenkeel
