#include "evenkeel/tokens.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "format/token_layout.h"
#include "src/bind.h"
#include "src/paths.h"
#include "src/reader.h"
#include "src/without_gil.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

constexpr std::uint64_t kFirstCrops = 4096;    // of a long call; see in_pieces
constexpr std::uint64_t kFirstTokens = 1'000'000;  // of one long crop

std::unique_ptr<Tokens> open(const std::vector<nb::bytes>& paths, const Budget& budget,
                             const std::string& engine, const std::optional<std::string>& dtype,
                             std::int64_t start, std::optional<std::int64_t> stop) {
  TokensOptions options{.budget = budget, .engine = parse_engine(engine)};
  if (dtype) options.dtype = DType::parse(*dtype);
  options.start = start;
  options.stop = stop;
  const std::vector<std::string> names = paths_of(paths);
  WithoutGil without;
  return std::make_unique<Tokens>(Tokens::open(names, options));
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
  WithoutGil without;
  in_pieces(without, numbers.size(), kFirstCrops, [&](std::uint64_t done, std::uint64_t now) {
    tokens.xy(numbers.subspan(done, now), block_size, type,
              span_of(x).subspan(done * row, now * row), span_of(y).subspan(done * row, now * row));
  });
}

void crops(const Tokens& tokens, const RowNumbers& starts, std::uint64_t count, const Bytes& out) {
  const std::span numbers(starts.data(), starts.size());
  const std::uint64_t size = tokens.dtype().size;
  const std::span<std::byte> bytes = span_of(out);
  if (bytes.size() != numbers.size() * count * size) {
    throw Error(ErrorKind::kInvalid, "tokens", "`out` is not of the size of the tokens");
  }
  const WithoutGil without;
  if (numbers.size() == 1) {
    in_pieces(without, count, kFirstTokens, [&](std::uint64_t done, std::uint64_t now) {
      const std::uint64_t start = numbers[0] + done;
      tokens.crops(std::span(&start, 1), now, bytes.subspan(done * size, now * size));
    });
    return;
  }
  in_pieces(without, numbers.size(), kFirstCrops, [&](std::uint64_t done, std::uint64_t now) {
    tokens.crops(numbers.subspan(done, now), count,
                 bytes.subspan(done * count * size, now * count * size));
  });
}

std::unique_ptr<Tokens> slice(const Tokens& tokens, std::int64_t start,
                              std::optional<std::int64_t> stop) {
  const WithoutGil without;
  return std::make_unique<Tokens>(tokens.slice(start, stop));
}

nb::tuple engine_of(const Tokens& tokens) {
  const EngineReport report = tokens.engine();
  return nb::make_tuple(std::string(engine_name(report.chosen)), report.how, report.why);
}

TokenType type_of(const std::string& name) {
  if (name == "int64") return TokenType::kInt64;
  if (name == "int32") return TokenType::kInt32;
  if (name == "stored") return TokenType::kStored;
  throw Error(ErrorKind::kInvalid, "loader",
              "there is no dtype \"" + name + "\" for tokens: int64, int32 or stored");
}

// A loader whose batches are taken one by one. The GIL guards it; waiting is done without it.
class BatchReader {
 public:
  using Memory = std::vector<std::pair<Bytes, Bytes>>;

  BatchReader(const std::vector<std::pair<Tokens, double>>& mixture, std::uint64_t batch_size,
              std::uint64_t block_size, const std::string& order, std::uint64_t seed,
              std::uint64_t rank, std::uint64_t world, std::uint32_t prefetch,
              const std::string& dtype, std::uint32_t keep, std::uint64_t steps,
              std::uint64_t stride, std::uint64_t phase, Memory memory)
      : samples_of_step_(batch_size * world), memory_(std::move(memory)) {
    LoaderOptions options{.batch_size = batch_size,
                          .block_size = block_size,
                          .order = parse_crop_order(order),
                          .seed = seed,
                          .rank = rank,
                          .world = world,
                          .prefetch = prefetch,
                          .type = type_of(dtype),
                          .keep = keep,
                          .steps = steps,
                          .stride = stride,
                          .phase = phase};
    for (const auto& [x, y] : memory_) options.memory.push_back({span_of(x), span_of(y)});
    std::vector<WeightedTokens> sets;
    for (const auto& [tokens, weight] : mixture) sets.push_back({tokens, weight});
    loader_ = std::make_unique<TokenLoader>(std::move(sets), std::move(options));
  }
  ~BatchReader() { close(); }

  // Its number among the given memory, if there is such; -1 after the last batch.
  std::int64_t next() {
    TokenLoader& loader = open();
    WithoutGil without;
    batch_ = loader.next();
    if (!batch_) return -1;
    const auto* x = reinterpret_cast<const std::uint8_t*>(batch_->x.bytes.data());
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if (memory_[i].first.data() == x) return static_cast<std::int64_t>(i);
    }
    return 0;
  }
  // The batch that `next` found, into memory of the caller's.
  void copy(const Bytes& x, const Bytes& y) {
    open();
    if (!batch_) throw Error(ErrorKind::kInvalid, "loader", "no batch was taken");
    require_size(x, batch_->x.bytes.size());
    require_size(y, batch_->y.bytes.size());
    WithoutGil without;
    std::memcpy(x.data(), batch_->x.bytes.data(), x.size());
    std::memcpy(y.data(), batch_->y.bytes.data(), y.size());
  }
  TokenLoader& open() {
    if (loader_) return *loader_;
    throw Error(ErrorKind::kClosed, "loader", "used after close").hint("make it anew");
  }
  void seek(std::uint64_t step) {
    TokenLoader& loader = open();
    batch_ = nullptr;
    WithoutGil without;
    loader.seek(step);
  }
  void load(const std::string& state) {
    TokenLoader& loader = open();
    const LoaderState parsed = LoaderState::parse(state);
    batch_ = nullptr;
    WithoutGil without;
    loader.load(parsed);
  }
  void close() {
    batch_ = nullptr;
    if (!loader_) return;
    const std::unique_ptr<TokenLoader> ending = std::move(loader_);
    WithoutGil without;
    TokenLoader gone(std::move(*ending));
  }

  std::uint64_t samples_of_step() const { return samples_of_step_; }

 private:
  const std::uint64_t samples_of_step_;
  const Memory memory_;
  std::unique_ptr<TokenLoader> loader_;
  const Batch* batch_ = nullptr;
};

std::string state_at(BatchReader& reader, std::uint64_t step) {
  LoaderState state = reader.open().state();
  state.samples = step * reader.samples_of_step();
  return state.text();
}

nb::list explained(BatchReader& reader, std::uint64_t step) {
  nb::list rows;
  for (const CropOrigin& origin : reader.open().explain(step)) {
    nb::dict row;
    row["sample"] = origin.sample;
    row["set"] = origin.set;
    row["epoch"] = origin.epoch;
    row["start"] = origin.start;
    row["path"] = nb::bytes(origin.path.data(), origin.path.size());
    row["offset"] = origin.offset;
    rows.append(row);
  }
  return rows;
}

}  // namespace

void bind_tokens(nb::module_& module) {
  nb::class_<Tokens>(module, "TokenStream", "Tokens of files; evenkeel.Tokens is made of it.")
      .def("__len__", &Tokens::size)
      .def_prop_ro("dtype", [](const Tokens& tokens) { return tokens.dtype().name(); })
      .def_prop_ro("format", &Tokens::format)
      .def_prop_ro("paths", [](const Tokens& tokens) { return bytes_of(tokens.paths()); })
      .def_prop_ro("budget", &Tokens::budget)
      .def_prop_ro("engine", &engine_of, nb::sig("def engine(self) -> tuple[str, str, str]"))
      .def_prop_ro("fingerprint", &Tokens::fingerprint)
      .def_prop_ro("first_token", &Tokens::first_token)
      .def("xy", &xy, "starts"_a, "block_size"_a, "dtype"_a, "x"_a, "y"_a)
      .def("crops", &crops, "starts"_a, "count"_a, "out"_a,
           "`count` tokens from each start, as they are stored.")
      .def("slice", &slice, "start"_a, "stop"_a.none());
  module.def("open_tokens", &open, "paths"_a, "budget"_a, "engine"_a, "dtype"_a.none(), "start"_a,
             "stop"_a.none());
  module.def(
      "expand_token_paths",
      [](const nb::bytes& path_or_glob) {
        return bytes_of(expand_token_paths(path_of(path_or_glob)));
      },
      "path_or_glob"_a, "The token files that a pattern or a Megatron prefix names, sorted.");

  nb::class_<BatchReader>(module, "BatchReader", "Batch after batch, read ahead.")
      .def(nb::init<const std::vector<std::pair<Tokens, double>>&, std::uint64_t, std::uint64_t,
                    const std::string&, std::uint64_t, std::uint64_t, std::uint64_t, std::uint32_t,
                    const std::string&, std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t,
                    BatchReader::Memory>(),
           "mixture"_a, "batch_size"_a, "block_size"_a, "order"_a, "seed"_a, "rank"_a, "world"_a,
           "prefetch"_a, "dtype"_a, "keep"_a, "steps"_a, "stride"_a, "phase"_a, "memory"_a)
      .def("next", &BatchReader::next, "Its number among the given memory; -1 after the last.")
      .def("copy", &BatchReader::copy, "x"_a, "y"_a)
      .def("seek", &BatchReader::seek, "step"_a)
      .def("load", &BatchReader::load, "state"_a)
      .def("close", &BatchReader::close)
      .def("explain", &explained, "step"_a,
           nb::sig("def explain(self, step: int) -> list[dict[str, object]]"))
      .def("state_at", &state_at, "step"_a)
      .def_prop_ro("step", [](BatchReader& reader) { return reader.open().step(); })
      .def_prop_ro("buffers", [](BatchReader& reader) { return reader.open().buffers(); })
      .def_prop_ro("epoch_samples",
                   [](BatchReader& reader) { return reader.open().epoch_samples(); });
}

}  // namespace evenkeel::python
