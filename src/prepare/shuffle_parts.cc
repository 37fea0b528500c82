#include "prepare/shuffle_parts.h"

#include <sys/resource.h>

#include <algorithm>
#include <bit>

#include "base/checked.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "prepare/input_files.h"
#include "prepare/shuffle_steps.h"

namespace evenkeel {
namespace {

// Joins the buckets of several files. Each bucket has a segment from each file.
class JoinedBuckets final : public BucketReader {
 public:
  JoinedBuckets(const std::vector<std::string>& paths, std::uint64_t first, std::uint64_t end,
                const Budget& budget) {
    for (const std::string& path : paths) {
      files_.push_back(std::make_unique<Buckets>(path, first, end));
      const auto found = distributed(*files_.back()->checkpoint());
      if (!found || !found->all || files_.back()->count() != files_.front()->count()) {
        throw Error(ErrorKind::kFormat, "shuffle", "this part of the work is not complete")
            .in(path)
            .hint("run that part again");
      }
      shares_.push_back(
          budget.reserve(files_.back()->index_bytes() + sizeof(Buckets), "parts that are read"));
    }
  }

  std::uint64_t count() const override { return files_.front()->count(); }
  const std::string& path() const override { return files_.front()->path(); }
  std::uint64_t bytes(std::uint64_t bucket) const override {
    std::uint64_t last = 0;
    for (const Segment& segment : segments(bucket)) last = segment.end;
    return last;
  }
  std::vector<Segment> segments(std::uint64_t bucket) const override {
    std::vector<Segment> found;
    each(bucket, [&](Buckets&, const Segment& segment) { found.push_back(segment); });
    return found;
  }
  std::uint64_t read(std::uint64_t bucket, std::uint64_t offset,
                     std::span<std::byte> out) override {
    std::uint64_t last = offset;
    each(bucket, [&](Buckets& file, const Segment& segment) {
      const std::uint64_t from = std::max(segment.begin, offset);
      const std::uint64_t to = std::min<std::uint64_t>(segment.end, offset + out.size());
      if (from >= to) return;
      file.read(bucket, from - segment.begin,
                out.subspan(from - offset, round_up(to - from, OutputFile::kAlignment)));
      last = to;
    });
    return last - offset;
  }

 private:
  template <class Work>
  void each(std::uint64_t bucket, Work work) const {
    std::uint64_t begin = 0;
    for (const auto& file : files_) {
      const std::uint64_t bytes = file->bytes(bucket);
      if (bytes == 0) continue;
      work(*file, Segment{begin, begin + bytes});
      begin += round_up(bytes, OutputFile::kAlignment);
    }
  }

  std::vector<std::unique_ptr<Buckets>> files_;
  std::vector<Reservation> shares_;
};

std::function<void(std::uint64_t)> progress_of(const ShuffleOptions& options, std::string_view step,
                                               std::uint64_t total) {
  return [&options, step, total](std::uint64_t done) {
    if (options.progress) options.progress({step, std::min(done, total), total});
  };
}

// A part of the second step opens one file of each part of the first step.
void require_descriptors(std::uint64_t parts) {
  constexpr std::uint64_t kOthers = 64;
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= parts + kOthers) return;
  throw Error(ErrorKind::kInvalid, "shuffle",
              with_commas(parts) + " parts are read at once, but a process may have " +
                  with_commas(limit.rlim_cur) + " files open")
      .hint("make fewer parts, or raise `ulimit -n` to " + std::to_string(parts + kOthers) +
            " or more, here and where the parts run");
}

}  // namespace

ShufflePlan plan_shuffle(const ShuffleOptions& options, std::uint64_t parts) {
  require_descriptors(parts);
  const ShuffleMemory memory(options.budget);
  const auto source = open_items(options.input, options.budget, memory.reading);
  source->require_apart_from(options.output, options.format);
  const SourceFacts facts = facts_of(*source);
  require_output(options.output, source->kind, options.format,
                 shuffle_output(options, options.budget, false, facts.bytes));
  if (facts.bytes == 0) {
    throw Error(ErrorKind::kInvalid, "shuffle", "there is nothing to shuffle")
        .in(options.input.paths.front());
  }
  ShufflePlan plan;
  plan.files = all_files(options.input);
  plan.bytes = facts.bytes;
  plan.items = facts.items;
  plan.buckets = std::max(parts, memory.buckets(facts));
  memory.block_bytes(facts, plan.buckets);  // throws if these are too many
  ItemInput& joined = plan.joined;
  if (const auto& tokens = source->kind.tokens) {
    plan.token_format = options.format.empty() ? tokens->format : options.format;
    const bool indexed = plan.token_format == "megatron" || plan.token_format == "datatrove";
    joined.unit = indexed ? ItemUnit::kDocuments : ItemUnit::kBlocks;
    joined.block_tokens = indexed ? 0 : 1 << 15;
    if (plan.token_format == "nanogpt") joined.dtype = tokens->dtype;
    plan.ending = plan.token_format == "npy"         ? ".npy"
                  : plan.token_format == "datatrove" ? ".ds"
                                                     : ".bin";
  } else {
    const ArrayWriterOptions& array = source->kind.array;
    plan.ending = array.format == "npy" ? ".npy" : ".raw";
    if (array.format != "npy") {
      joined.dtype = array.dtype;
      joined.shape = array.shape;
    }
  }
  return plan;
}

ItemRange count_lines(const ShuffleOptions& options, std::uint64_t begin, std::uint64_t end) {
  const ShuffleMemory memory(options.budget);
  const auto source = open_items(options.input, options.budget, memory.reading);
  if (begin > 0) {  // skip the rest of a line that begins before, even if only its newline
    source->seek({0, begin - 1});
    source->next();
  }
  const auto show = progress_of(options, "counting", end - begin);
  ItemRange range{{0, source->position().offset}, 0};
  for (std::uint64_t reported = begin, at = range.begin.offset; at < end && source->next();) {
    ++range.items;
    at = source->position().offset;
    if (at - reported < 4_MiB) continue;
    reported = at;
    show(at - begin);
  }
  return range;
}

WorkReport distribute_part(const ShuffleOptions& options, const std::string& kind,
                           const ItemRange& range, std::uint64_t buckets) {
  const ShuffleMemory memory(options.budget);
  auto made = std::make_unique<Buckets>(options.output, true);
  std::optional<Distributed> found;
  if (const auto& checkpoint = made->checkpoint()) {
    found = distributed(*checkpoint);
    if (checkpoint->kind != kind || !found) {
      found.reset();
      made->discard();
      made = std::make_unique<Buckets>(options.output, false);
    }
  }
  const std::uint64_t end = range.begin.item + range.items;
  WorkReport report;
  report.resumed = found.has_value();
  report.items = range.items;
  if (found && found->all) return report;
  const auto source = open_items(options.input, options.budget, memory.reading);
  const SourceFacts facts = facts_of(*source);
  BucketSize size;
  size.buckets = buckets;
  if (found) {
    source->seek(found->at);
  } else {
    if (options.input.unit == ItemUnit::kLines) {
      source->seek(range.begin);
    } else {
      source->seek_item(range.begin.item);
    }
    // Each bucket of each part has at least one extent, and half of the last one is unused.
    const std::uint64_t bytes = facts.bytes / std::max<std::uint64_t>(1, facts.items) * range.items;
    const std::uint64_t share = std::max<std::uint64_t>(1, bytes / buckets);
    size.block_bytes = std::clamp(std::bit_floor(std::max<std::uint64_t>(1, share / 64)),
                                  OutputFile::kAlignment, memory.block_bytes(facts, buckets));
    size.extent_blocks = std::clamp<std::uint64_t>(share / size.block_bytes / 4, 1, 16);
    require_room("shuffle", options.output,
                 bytes + range.items * StoredItem::kNumberBytes +
                     std::min(buckets, range.items) * size.block_bytes * size.extent_blocks / 2);
  }
  made->begin(options.budget, size);
  const std::uint64_t from = source->position().offset;
  const auto show = progress_of(options, "distributing", facts.bytes - from);
  const std::uint64_t reached = distribute_items(
      *source, *made,
      {{options.seed}, kind, options.checkpoint_bytes, [&](std::uint64_t at) { show(at - from); }},
      end);
  if (reached != end) {
    made->discard();
    throw Error(ErrorKind::kFormat, "shuffle",
                "the files have " + with_commas(reached) + " items; " + with_commas(end) +
                    " or more were planned")
        .in(options.input.paths.back())
        .hint("the files were changed: make a new manifest");
  }
  return report;
}

WorkReport write_part(const ShuffleOptions& options, const std::string& kind,
                      const std::vector<std::string>& scratch, std::uint64_t first_bucket,
                      std::uint64_t end_bucket) {
  const ShuffleMemory memory(options.budget);
  ItemKind like;
  SourceFacts facts;
  {
    const auto source = open_items(options.input, options.budget, memory.reading);
    like = source->kind;
    facts = facts_of(*source);
  }
  JoinedBuckets buckets(scratch, first_bucket, end_bucket, options.budget);
  const Reservation writing = options.budget.reserve(memory.writing, "writing");
  const auto open = [&](bool resume) {
    return create_items(options.output, like, options.format,
                        shuffle_output(options, Budget(memory.writing), resume, 0));
  };
  auto sink = open(true);
  if (sink->resumed() && !sink->state().starts_with(kind)) {
    sink->abort();
    sink.reset();
    sink = open(false);
  }
  std::uint64_t total = 0;
  for (std::uint64_t bucket = first_bucket; bucket < end_bucket; ++bucket) {
    total += buckets.bytes(bucket);
  }
  WorkReport report;
  WriteWork work;
  work.keys = {options.seed};
  work.item_bytes = facts.item_bytes;
  work.part_bytes = memory.part;
  work.begin = first_bucket, work.end = end_bucket;
  work.kind = kind, work.output = options.output;
  work.checkpoint_bytes = options.checkpoint_bytes;
  work.progress = progress_of(options, "writing", total);
  work.saved = [](std::uint64_t) {};
  write_sorted(buckets, *sink, options.budget, work, report);
  report.how = sink->how();
  sink->close();
  return report;
}

}  // namespace evenkeel
