#include "evenkeel/tokens.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "format/token_layout.h"
#include "src/batch_reader.h"
#include "src/bind.h"
#include "src/interruptible.h"
#include "src/lent_array.h"
#include "src/paths.h"
#include "src/reader.h"
#include "src/stats.h"
#include "tokens/loader.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

std::unique_ptr<Tokens> open(const std::vector<nb::bytes>& paths, const Budget& budget,
                             const std::string& engine, const std::optional<std::string>& dtype,
                             std::int64_t start, std::optional<std::int64_t> stop,
                             std::optional<std::uint64_t> cache, const std::string& page_cache,
                             const std::string& disk_cache) {
  TokensOptions options{.budget = budget,
                        .engine = parse_engine(engine),
                        .page_cache = parse_page_cache(page_cache),
                        .cache = cache,
                        .disk_cache = disk_cache};
  if (dtype) options.dtype = DType::parse(*dtype);
  options.start = start;
  options.stop = stop;
  return interruptible([names = paths_of(paths), options] {
    return std::make_unique<Tokens>(Tokens::open(names, options));
  });
}

void require_size(const Bytes& out, std::uint64_t bytes) {
  if (out.size() == bytes) return;
  throw Error(ErrorKind::kInvalid, "xy",
              "`out` has " + with_commas(out.size()) + " bytes, x and y have " +
                  with_commas(bytes) + " each");
}

void xy(const Tokens& tokens, const RowNumbers& starts, std::uint64_t block_size,
        const std::string& dtype, const Bytes& x, const Bytes& y) {
  const DType type = DType::parse(dtype);
  const std::span numbers(starts.data(), starts.size());
  const std::uint64_t row = block_size * type.size;
  require_size(x, numbers.size() * row);
  require_size(y, numbers.size() * row);
  interruptible([tokens, numbers, block_size, type, x_bytes = span_of(x), y_bytes = span_of(y),
                 starts_held = held(starts), x_held = held(x),
                 y_held = held(y)] { tokens.xy(numbers, block_size, type, x_bytes, y_bytes); });
}

void crops(const Tokens& tokens, const RowNumbers& starts, std::uint64_t count, const Bytes& out) {
  const std::span numbers(starts.data(), starts.size());
  const std::uint64_t size = tokens.dtype().size;
  const std::span<std::byte> bytes = span_of(out);
  if (bytes.size() != numbers.size() * count * size) {
    throw Error(ErrorKind::kInvalid, "tokens", "`out` does not have the size of the tokens");
  }
  interruptible([tokens, numbers, count, bytes, starts_held = held(starts), out_held = held(out)] {
    tokens.crops(numbers, count, bytes);
  });
}

std::unique_ptr<Tokens> slice(const Tokens& tokens, std::int64_t start,
                              std::optional<std::int64_t> stop) {
  return interruptible(
      [tokens, start, stop] { return std::make_unique<Tokens>(tokens.slice(start, stop)); });
}

nb::tuple engine_of(const Tokens& tokens) {
  const EngineReport report = interruptible([tokens] { return tokens.engine(); });
  return nb::make_tuple(std::string(engine_name(report.chosen)), report.how, report.why);
}

std::optional<DType> type_of(const std::string& name) {
  if (name == "stored") return std::nullopt;
  if (name == "int64" || name == "int32") return DType::parse(name);
  throw Error(ErrorKind::kInvalid, "loader",
              "dtype must be int64, int32 or stored; got \"" + name + "\"");
}

std::string name_of(const std::optional<DType>& type) { return type ? type->name() : "stored"; }

nb::dlpack::dtype dlpack_type(DType type) {
  const auto code =
      type.kind == DTypeKind::kInt ? nb::dlpack::dtype_code::Int : nb::dlpack::dtype_code::UInt;
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(type.size * 8), 1};
}

class TokenReader final : public BatchReader<TokenLoader::Impl, LoaderState> {
 public:
  using Loader = TokenLoader::Impl;
  using Memory = std::vector<std::vector<Bytes>>;
  using Sets = std::vector<std::pair<Tokens, double>>;
  using Masks = std::vector<std::optional<Tokens>>;

  // Batches are put into `memory` if there is any: for each batch x, y and, if the options have
  // documents, the fields of documents. `masks` has one mask for each set of the mixture, or is
  // empty.
  TokenReader(const Sets& mixture, LoaderOptions options, const Memory& memory, const Masks& masks)
      : BatchReader(make(mixture, std::move(options), memory, masks)),
        in_memory_(!memory.empty()) {}

 private:
  static std::shared_ptr<Loader> make(const Sets& mixture, LoaderOptions options,
                                      const Memory& memory, const Masks& masks) {
    for (const std::vector<Bytes>& batch : memory) {
      options.buffers.memory.push_back({span_of(batch.at(0)), span_of(batch.at(1))});
      if (batch.size() > 2) options.buffers.memory.back().documents = span_of(batch[2]);
    }
    std::vector<WeightedTokens> sets;
    for (const auto& [tokens, weight] : mixture) sets.push_back({tokens, weight});
    for (std::size_t i = 0; i < masks.size(); ++i) sets.at(i).loss_mask = masks[i];
    const auto buffers = held(memory);  // as long as threads may write there
    return interruptible([sets = std::move(sets), options = std::move(options), buffers] {
      return std::shared_ptr<Loader>(new Loader(sets, options, true),
                                     [buffers](Loader* loader) { delete loader; });
    });
  }

  // (x, y), or with documents (x, y, the fields of documents, (documents, longest, positions)).
  nb::object arrays_of(const SharedLent& lent) override {
    const Batch batch = lent->batch;
    const auto *x = batch.x_bytes().data(), *y = batch.y_bytes().data();
    const auto* documents = batch.document_bytes().data();
    const std::uint64_t bytes = batch.x_bytes().size(), more = batch.document_bytes().size();
    nb::capsule owner;
    if (2 * bytes + more >= kWorthLending || in_memory_) {
      owner = owner_of(lent);
    } else {
      auto copy = std::make_unique_for_overwrite<std::byte[]>(2 * bytes + more);
      std::memcpy(copy.get() + more, x, bytes);
      std::memcpy(copy.get() + more + bytes, y, bytes);
      if (more > 0) std::memcpy(copy.get(), documents, more);  // with the same alignment
      documents = copy.get();
      x = copy.get() + more;
      y = x + bytes;
      owner = owner_of(std::move(copy));
    }
    const nb::object first = array_of(x, batch, owner), second = array_of(y, batch, owner);
    if (more == 0) return nb::make_tuple(first, second);
    const nb::ndarray<nb::numpy, std::uint8_t> block(const_cast<std::byte*>(documents), {more},
                                                     owner);
    nb::object third = nb::cast(block);
    if (!convert.is_none()) third = nb::object(convert(third));
    return nb::make_tuple(first, second, third,
                          nb::make_tuple(batch.cu_seqlens().size() - 1, batch.max_seqlen(),
                                         batch.rows() * batch.columns()));
  }

  nb::object array_of(const std::byte* data, const Batch& batch, const nb::capsule& owner) const {
    const std::size_t shape[2] = {batch.rows(), batch.columns()};
    const std::size_t left_out = batch.ragged() ? 1 : 0;  // one row of all documents
    const nb::ndarray<nb::numpy> array(const_cast<std::byte*>(data), 2 - left_out, shape + left_out,
                                       owner, nullptr, dlpack_type(batch.dtype()));
    nb::object result = nb::cast(array);
    // It is of NumPy's other type with 64 bits, ulonglong, which torch does not take.
    if (batch.dtype() == DType::of<std::uint64_t>()) result = result.attr("view")("uint64");
    return convert.is_none() ? result : nb::object(convert(result));
  }

  const bool in_memory_;
};

nb::list explained(const TokenReader& reader, std::uint64_t step) {
  nb::list rows;
  const auto origins =
      interruptible([loader = reader.open(), step] { return loader->explain(step); });
  const bool with_documents = reader.open()->has_documents();
  for (const CropOrigin& origin : origins) {
    nb::dict row;
    row["sample"] = origin.sample;
    row["set"] = origin.set;
    row["epoch"] = origin.epoch;
    row["start"] = origin.start;
    row["path"] = nb::bytes(origin.path.data(), origin.path.size());
    row["offset"] = origin.offset;
    row["stage"] = origin.stage;
    if (with_documents) {
      nb::list documents;
      for (const CropOrigin::Document& one : origin.documents) {
        nb::dict document;
        document["document"] = one.document;
        document["from"] = one.from;
        document["start"] = one.start;
        document["tokens"] = one.tokens;
        documents.append(document);
      }
      row["documents"] = documents;
    }
    rows.append(row);
  }
  return rows;
}

void bind_document_options(nb::module_& module) {
  using Options = DocumentOptions;
  nb::class_<Options>(module, "DocumentOptions", "What a TokenLoader does with documents.")
      .def(nb::init<>())
      .def_prop_rw(
          "mode", [](const Options& options) { return document_mode_name(options.mode); },
          [](Options& options, const std::string& name) {
            options.mode = parse_document_mode(name);
          })
      .def_rw("bos", &Options::bos, nb::arg().none())
      .def_rw("eos", &Options::eos, nb::arg().none())
      .def_prop_rw(
          "index",
          [](const Options& options) {
            return nb::bytes(options.index.data(), options.index.size());
          },
          [](Options& options, const nb::bytes& folder) { options.index = path_of(folder); })
      .def_rw("predict_first", &Options::predict_first)
      .def_rw("most_documents", &Options::most_documents)
      .def_rw("use_leftovers", &Options::use_leftovers)
      .def_rw("window", &Options::window)
      .def_rw("mixed_windows", &Options::mixed_windows)
      .def_rw("bucket", &Options::bucket)
      .def_rw("crop_long", &Options::crop_long)
      .def_rw("pad", &Options::pad);
  module.def(
      "documents_layout",
      [](std::uint64_t rows, std::uint64_t columns, std::uint32_t most_documents) {
        const DocumentsLayout layout = documents_layout(rows, columns, most_documents);
        return nb::make_tuple(layout.position_ids, layout.document_ids, layout.cu_seqlens,
                              layout.loss_mask, layout.bytes);
      },
      "rows"_a, "columns"_a, "most_documents"_a,
      nb::sig("def documents_layout(rows: int, columns: int, most_documents: int) -> tuple[int, "
              "int, int, int, int]"),
      "Byte offsets of position_ids, document_ids, cu_seqlens and loss_mask, and the total size.");
}

void bind_loader_options(nb::module_& module) {
  using Options = LoaderOptions;
  nb::class_<Options> type(module, "LoaderOptions", "The options of a TokenLoader.");
  bind_step_options(type);
  type.def_rw("block_size", &Options::block_size)
      .def_prop_rw(
          "order", [](const Options& options) { return crop_order_name(options.order); },
          [](Options& options, const std::string& name) { options.order = parse_crop_order(name); })
      .def_prop_rw(
          "dtype", [](const Options& options) { return name_of(options.dtype); },
          [](Options& options, const std::string& name) { options.dtype = type_of(name); })
      .def_rw("mixture", &Options::mixture)
      .def_prop_rw(
          "megatron",
          [](const Options& options) {
            const MegatronOptions& megatron = options.megatron;
            return std::tuple(megatron.samples, megatron.surplus, megatron.by_size);
          },
          [](Options& options, const std::tuple<std::uint64_t, double, bool>& of) {
            options.megatron = {std::get<0>(of), std::get<1>(of), std::get<2>(of)};
          },
          "Samples (0: not given), surplus, and whether sets are blended by their size.")
      .def_rw("documents", &Options::documents);
}

}  // namespace

void bind_tokens(nb::module_& module) {
  nb::class_<Tokens>(module, "TokenStream",
                     "Tokens of files. The implementation of evenkeel.Tokens.")
      .def("__len__", &Tokens::size)
      .def_prop_ro("dtype", [](const Tokens& tokens) { return tokens.dtype().name(); })
      .def_prop_ro("format", &Tokens::format)
      .def_prop_ro("paths", [](const Tokens& tokens) { return bytes_of(tokens.paths()); })
      .def_prop_ro("budget", &Tokens::budget)
      .def_prop_ro("engine", &engine_of, nb::sig("def engine(self) -> tuple[str, str, str]"))
      .def(
          "stats",
          [](const Tokens& tokens) {
            return dict_of(interruptible([tokens] { return tokens.stats(); }));
          },
          nb::sig("def stats(self) -> dict[str, int]"))
      .def_prop_ro("fingerprint", &Tokens::fingerprint)
      .def_prop_ro("first_token", &Tokens::first_token)
      .def("xy", &xy, "starts"_a, "block_size"_a, "dtype"_a, "x"_a, "y"_a)
      .def("crops", &crops, "starts"_a, "count"_a, "out"_a,
           "`count` tokens from each start, as they are stored.")
      .def("slice", &slice, "start"_a, "stop"_a.none())
      .def(
          "megatron_split",
          [](const Tokens& tokens, const std::string& split) {
            return interruptible([tokens, split] { return megatron_split(tokens, split); });
          },
          "split"_a);
  module.def("open_tokens", &open, "paths"_a, "budget"_a, "engine"_a, "dtype"_a.none(), "start"_a,
             "stop"_a.none(), "cache"_a.none(), "page_cache"_a, "disk_cache"_a);
  module.def(
      "expand_token_paths",
      [](const nb::bytes& path_or_glob) {
        return bytes_of(interruptible(
            [pattern = path_of(path_or_glob)] { return expand_token_paths(pattern); }));
      },
      "path_or_glob"_a, "The token files that a pattern or a Megatron prefix names, sorted.");

  bind_document_options(module);
  bind_loader_options(module);
  nb::class_<TokenReader> reader(module, "BatchReader",
                                 nb::type_slots(collector_slots<TokenReader>()),
                                 "Reads batches ahead.");
  reader
      .def(nb::init<const TokenReader::Sets&, LoaderOptions, const TokenReader::Memory&,
                    const TokenReader::Masks&>(),
           "mixture"_a, "options"_a, "memory"_a, "masks"_a)
      .def("take", &TokenReader::take, nb::sig("def take(self) -> tuple[typing.Any, ...] | None"),
           "The next batch (x, y), in memory that the caller owns; None after the last. With "
           "documents also their fields, and (documents, longest, positions).")
      .def(
          "__next__", [](nb::handle self) { return nb::cast<TokenReader&>(self).next(self); },
          nb::sig("def __next__(self) -> tuple[typing.Any, typing.Any]"))
      .def_prop_ro(
          "packing",
          [](const TokenReader& reader) {
            const Packing packing = reader.open()->packing();
            nb::dict shares;
            shares["padding"] = packing.padding;
            shares["cut"] = packing.cut;
            shares["split"] = packing.split;
            shares["inside"] = packing.inside;
            return shares;
          },
          nb::sig("def packing(self) -> dict[str, float]"),
          "What `documents` costs, for the rows prepared so far: the shares of positions that are "
          "padding, of tokens that are in no row, of documents that were split although they fit a "
          "row, and of rows that begin inside a document.")
      .def("explained", &explained, "step"_a,
           nb::sig("def explained(self, step: int) -> list[dict[str, object]]"));
  bind_batch_reader(reader);
}

}  // namespace evenkeel::python
