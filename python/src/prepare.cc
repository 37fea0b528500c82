// Data preparation for Python: shuffles, whole or in parts, and statistics of files.
#include "evenkeel/prepare.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "evenkeel/stats.h"
#include "prepare/items.h"
#include "prepare/shuffle_parts.h"
#include "src/bind.h"
#include "src/paths.h"
#include "src/without_gil.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

// Files and what is known about them. The unit is detected if it was not given.
ItemInput item_input(const std::vector<nb::bytes>& paths, const std::optional<std::string>& unit,
                     const std::optional<std::string>& dtype,
                     const std::vector<std::int64_t>& shape, std::uint64_t block,
                     std::optional<std::int64_t> bos, std::optional<std::int64_t> eos) {
  ItemInput input;
  input.paths = paths_of(paths);
  if (input.paths.empty()) throw Error(ErrorKind::kInvalid, "open", "no file was named");
  if (dtype) input.dtype = DType::parse(*dtype);
  input.shape = shape;
  input.block_tokens = block;
  input.bos = bos;
  input.eos = eos;
  input.unit = unit ? parse_item_unit(*unit) : usual_unit(input);
  return input;
}

// Runs long work without the GIL. Ctrl-C ends it, and `progress`, if given, is called to show it.
template <class Options, class Work>
auto work_on(Options& options, nb::handle progress, Work work) {
  const WithoutGil without;
  const bool main = WithoutGil::on_main_thread();
  options.progress = [&](const WorkProgress& now) {
    if (main) without.check_signals();
    if (progress.is_none()) return;
    const WithGil gil;
    nb::dict told;
    told["step"] = nb::str(now.step.data(), now.step.size());
    told["done"] = now.done;
    told["total"] = now.total;
    progress(told);
  };
  if constexpr (requires { options.while_waiting; }) {
    options.while_waiting = [&] {
      if (main) without.check_signals();
    };
  }
  return work();
}

nb::dict dict_of(const WorkReport& report) {
  nb::dict dict;
  dict["items"] = report.items;
  dict["bytes"] = report.bytes;
  dict["resumed"] = report.resumed;
  dict["how"] = report.how;
  return dict;
}

ShuffleOptions shuffle_options(const ItemInput& input, const nb::bytes& output,
                               const std::string& format, std::uint64_t seed,
                               const Budget& budget) {
  ShuffleOptions options;
  options.input = input;
  options.output = path_of(output);
  options.format = format;
  options.seed = seed;
  options.budget = budget;
  return options;
}

nb::dict dict_of(const ShufflePlan& plan) {
  nb::dict dict, joined;
  dict["files"] = bytes_of(plan.files);
  dict["bytes"] = plan.bytes;
  dict["items"] = plan.items;
  dict["buckets"] = plan.buckets;
  dict["ending"] = plan.ending;
  dict["token_format"] = plan.token_format;
  joined["unit"] = std::string(item_unit_name(plan.joined.unit));
  joined["dtype"] = plan.joined.dtype ? nb::cast(plan.joined.dtype->name()) : nb::none();
  joined["shape"] = plan.joined.shape;
  joined["block"] = plan.joined.block_tokens;
  dict["joined"] = joined;
  return dict;
}

nb::dict dict_of(const NumberStats& stats, const std::vector<double>& quantiles) {
  nb::dict dict;
  dict["count"] = stats.count;
  dict["nan"] = stats.nan;
  dict["positive_infinity"] = stats.positive_infinity;
  dict["negative_infinity"] = stats.negative_infinity;
  if (stats.count == 0) return dict;
  dict["min"] = stats.min;
  dict["max"] = stats.max;
  dict["mean"] = stats.mean;
  dict["variance"] = stats.variance;
  nb::list places, bins;
  for (std::size_t i = 0; i < stats.quantiles.size(); ++i) {
    nb::dict one;
    one["q"] = quantiles[i];
    one["value"] = stats.quantiles[i];
    places.append(one);
  }
  for (const HistogramBin& bin : stats.histogram) {
    nb::dict one;
    one["begin"] = bin.begin;
    one["end"] = bin.end;
    one["count"] = bin.count;
    bins.append(one);
  }
  dict["quantiles"] = places;
  nb::dict histogram;
  histogram["bins"] = bins;
  histogram["below"] = stats.below;
  histogram["above"] = stats.above;
  dict["histogram"] = histogram;
  return dict;
}

// The same figures, with the same names, as in --json of the command.
nb::dict dict_of(const StatsReport& report, const StatsOptions& options) {
  nb::dict dict;
  dict["unit"] = std::string(item_unit_name(options.input.unit));
  dict["items"] = report.items;
  dict["bytes"] = report.bytes;
  if (options.input.unit == ItemUnit::kRows) {
    nb::list columns;
    for (const NumberStats& one : report.columns) columns.append(dict_of(one, options.quantiles));
    dict["columns"] = columns;
  }
  if (report.tokens > 0) {
    nb::list top;
    for (const TokenCount& one : report.most_frequent) {
      nb::dict count;
      count["token"] = one.token;
      count["count"] = one.count;
      top.append(count);
    }
    nb::dict tokens;
    tokens["count"] = report.tokens;
    tokens["distinct"] = report.distinct;
    tokens["uncounted"] = report.uncounted;
    tokens["most_frequent"] = top;
    if (report.largest) tokens["largest"] = *report.largest;
    dict["tokens"] = tokens;
  }
  if (report.lengths) dict["lengths"] = dict_of(*report.lengths, options.quantiles);
  dict["rank_error"] = report.rank_error;
  dict["budget_bytes"] = options.budget.limit();
  dict["budget_peak_bytes"] = options.budget.peak();
  dict["resumed"] = report.resumed;
  return dict;
}

void bind_shuffle(nb::module_& module) {
  module.def(
      "shuffle",
      [](const ItemInput& items, const nb::bytes& output, const std::string& format,
         std::uint64_t seed, const Budget& budget, const nb::bytes& scratch, bool checksums,
         bool resume, std::uint64_t checkpoint, nb::handle progress) {
        ShuffleOptions options = shuffle_options(items, output, format, seed, budget);
        options.scratch = path_of(scratch);
        options.checksums = checksums;
        options.resume = resume;
        options.checkpoint_bytes = checkpoint;
        return dict_of(work_on(options, progress, [&] { return shuffle(options); }));
      },
      "items"_a, "output"_a, "format"_a, "seed"_a, "budget"_a, "scratch"_a, "checksums"_a,
      "resume"_a, "checkpoint"_a, "progress"_a.none(),
      nb::sig("def shuffle(items: Items, output: bytes, format: str, seed: int, budget: Budget, "
              "scratch: bytes, checksums: bool, resume: bool, checkpoint: int, progress: object | "
              "None) -> dict[str, object]"));
  module.def(
      "plan_shuffle",
      [](const ItemInput& items, const nb::bytes& output, const std::string& format,
         const Budget& budget, std::uint64_t parts) {
        ShuffleOptions options = shuffle_options(items, output, format, 0, budget);
        return dict_of(work_on(options, nb::none(), [&] { return plan_shuffle(options, parts); }));
      },
      "items"_a, "output"_a, "format"_a, "budget"_a, "parts"_a,
      nb::sig("def plan_shuffle(items: Items, output: bytes, format: str, budget: Budget, parts: "
              "int) -> dict[str, object]"));
  module.def(
      "count_lines",
      [](const ItemInput& items, const Budget& budget, std::uint64_t begin, std::uint64_t end,
         nb::handle progress) {
        ShuffleOptions options;
        options.input = items;
        options.budget = budget;
        const ItemRange range =
            work_on(options, progress, [&] { return count_lines(options, begin, end); });
        return std::pair(range.begin.offset, range.items);
      },
      "items"_a, "budget"_a, "begin"_a, "end"_a, "progress"_a.none(),
      "Counts the lines that begin within these bytes: where the first begins, and how many there "
      "are.");
  module.def(
      "distribute_part",
      [](const ItemInput& items, const nb::bytes& output, std::uint64_t seed, const Budget& budget,
         std::uint64_t checkpoint, const std::string& kind, std::uint64_t first,
         std::uint64_t offset, std::uint64_t count, std::uint64_t buckets, nb::handle progress) {
        ShuffleOptions options = shuffle_options(items, output, "", seed, budget);
        options.checkpoint_bytes = checkpoint;
        return dict_of(work_on(options, progress, [&] {
          return distribute_part(options, kind, {{first, offset}, count}, buckets);
        }));
      },
      "items"_a, "output"_a, "seed"_a, "budget"_a, "checkpoint"_a, "kind"_a, "first"_a, "offset"_a,
      "count"_a, "buckets"_a, "progress"_a.none(),
      nb::sig("def distribute_part(items: Items, output: bytes, seed: int, budget: Budget, "
              "checkpoint: int, kind: str, first: int, offset: int, count: int, buckets: int, "
              "progress: object | None) -> dict[str, object]"));
  module.def(
      "write_part",
      [](const ItemInput& items, const nb::bytes& output, const std::string& format,
         std::uint64_t seed, const Budget& budget, std::uint64_t checkpoint,
         const std::string& kind, const std::vector<nb::bytes>& scratch, std::uint64_t first,
         std::uint64_t end, nb::handle progress) {
        ShuffleOptions options = shuffle_options(items, output, format, seed, budget);
        options.checkpoint_bytes = checkpoint;
        const std::vector<std::string> files = paths_of(scratch);
        return dict_of(work_on(options, progress,
                               [&] { return write_part(options, kind, files, first, end); }));
      },
      "items"_a, "output"_a, "format"_a, "seed"_a, "budget"_a, "checkpoint"_a, "kind"_a,
      "scratch"_a, "first"_a, "end"_a, "progress"_a.none(),
      nb::sig("def write_part(items: Items, output: bytes, format: str, seed: int, budget: Budget, "
              "checkpoint: int, kind: str, scratch: Sequence[bytes], first: int, end: int, "
              "progress: object | None) -> dict[str, object]"));
}

}  // namespace

void bind_prepare(nb::module_& module) {
  nb::class_<ItemInput>(module, "Items", "Input files, and the unit of their items.")
      .def(
          "__init__",
          [](ItemInput* self, const std::vector<nb::bytes>& paths,
             const std::optional<std::string>& unit, const std::optional<std::string>& dtype,
             const std::vector<std::int64_t>& shape, std::uint64_t block,
             std::optional<std::int64_t> bos, std::optional<std::int64_t> eos) {
            new (self) ItemInput(item_input(paths, unit, dtype, shape, block, bos, eos));
          },
          "paths"_a, "unit"_a.none() = nb::none(), "dtype"_a.none() = nb::none(),
          "shape"_a = std::vector<std::int64_t>(), "block"_a = 0, "bos"_a.none() = nb::none(),
          "eos"_a.none() = nb::none())
      .def_prop_ro("unit",
                   [](const ItemInput& self) { return std::string(item_unit_name(self.unit)); });
  bind_shuffle(module);
  module.def(
      "copy_items",
      [](const ItemInput& items, const nb::bytes& output, const std::string& format,
         const Budget& budget, bool checksums, bool resume, nb::handle progress) {
        CopyOptions options;
        options.input = items;
        options.output = path_of(output);
        options.format = format;
        options.budget = budget;
        options.checksums = checksums;
        options.resume = resume;
        return dict_of(work_on(options, progress, [&] { return copy_items(options); }));
      },
      "items"_a, "output"_a, "format"_a, "budget"_a, "checksums"_a, "resume"_a, "progress"_a.none(),
      nb::sig("def copy_items(items: Items, output: bytes, format: str, budget: Budget, checksums: "
              "bool, resume: bool, progress: object | None) -> dict[str, object]"));
  module.def(
      "stats",
      [](const ItemInput& items, const Budget& budget, const std::vector<double>& quantiles,
         std::uint64_t sketch, std::uint64_t bins, std::uint64_t top, const nb::bytes& state,
         bool resume, std::uint64_t checkpoint, nb::handle progress) {
        StatsOptions options;
        options.input = items;
        options.budget = budget;
        options.quantiles = quantiles;
        options.sketch = sketch;
        options.bins = bins;
        options.top = top;
        options.state = path_of(state);
        options.resume = resume;
        options.checkpoint_bytes = checkpoint;
        return dict_of(work_on(options, progress, [&] { return stats(options); }), options);
      },
      "items"_a, "budget"_a, "quantiles"_a, "sketch"_a, "bins"_a, "top"_a, "state"_a, "resume"_a,
      "checkpoint"_a, "progress"_a.none(),
      nb::sig(
          "def stats(items: Items, budget: Budget, quantiles: Sequence[float], sketch: int, "
          "bins: int, top: int, state: bytes, resume: bool, checkpoint: int, progress: object | "
          "None) -> dict[str, object]"));
}

}  // namespace evenkeel::python
