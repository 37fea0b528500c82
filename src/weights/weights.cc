#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>
#include <utility>

#include "array/internal.h"
#include "base/checked.h"
#include "base/memory.h"
#include "base/visible.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "format/part.h"
#include "format/tensor_table.h"
#include "remote/opening.h"
#include "weights/group_reader.h"
#include "weights/impl.h"

namespace evenkeel {
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kIndexEnd = ".safetensors.index.json";
// A tensor of at least this size is read straight into its own pages.
constexpr std::uint64_t kOwnPages = 1_MiB;
// Smaller tensors are read in groups: large enough to keep the disk busy, small enough that a
// cancelled read ends soon.
constexpr std::uint64_t kGroupBytes = 16_MiB;
constexpr std::size_t kGroupRuns = 4096;

struct Files {
  std::vector<std::string> paths;
  std::optional<SafetensorsIndex> index;
};

bool is_folder(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool exists(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0;
}

// The file to open in a model folder, by the names that Hugging Face uses.
std::string file_of_folder(const std::string& folder) {
  const std::string prefix = folder.ends_with('/') ? folder : folder + '/';
  for (const std::string_view name : {kIndexName, std::string_view("model.safetensors")}) {
    if (std::string path = prefix + std::string(name); exists(path)) return path;
  }
  throw Error(ErrorKind::kInvalid, "open",
              "the folder has neither " + std::string(kIndexName) + " nor model.safetensors")
      .in(folder)
      .hint("pass the path of the file itself");
}

Files files_of(const std::string& path, const Budget& budget) {
  const std::string file = is_folder(path) ? file_of_folder(path) : path;
  if (!file.ends_with(kIndexEnd)) return {expand_paths(file), {}};
  SafetensorsIndex index = read_safetensors_index(file, budget);
  std::vector<std::string> paths = index.files;
  return {std::move(paths), std::move(index)};
}

TensorTable read_table(const Source& source, const Budget& budget) {
  const std::string head = source.read(0, 16);
  if (is_gguf(head)) return read_gguf(source, budget);
  if (is_safetensors(head, source.identity.size) || source.path.ends_with(".safetensors")) {
    return read_safetensors(source, budget);
  }
  throw Error(ErrorKind::kFormat, "open",
              "not a file of weights: it is neither safetensors nor GGUF")
      .in(source.path)
      .hint("if it holds arrays of numbers, open it as an array");
}

std::uint64_t table_memory(const TensorTable& table) {
  std::uint64_t bytes = 0;
  for (const Tensor& tensor : table.tensors) {
    bytes += sizeof(Tensor) + tensor.name.size() + tensor.shape.size() * 8 + 64;
  }
  for (const auto& [key, value] : table.metadata) bytes += key.size() + value.size() + 128;
  return bytes;
}

// Drops tensors that the index does not list. Every tensor that it lists must be there: a missing
// one would go unnoticed otherwise.
void keep_indexed(std::vector<Tensor>& tensors, const SafetensorsIndex& index,
                  const std::string& path) {
  std::erase_if(tensors, [&](const Tensor& tensor) {
    const auto found = index.tensors.find(tensor.name);
    return found == index.tensors.end() || found->second != tensor.file;
  });
  if (tensors.size() == index.tensors.size()) return;
  std::unordered_set<std::string_view> found;
  for (const Tensor& tensor : tensors) found.insert(tensor.name);
  for (const auto& [name, file] : index.tensors) {
    if (found.contains(name)) continue;
    throw Error(ErrorKind::kFormat, "open",
                "the index says that tensor \"" + printable(name) + "\" is in " +
                    visible(index.files[file]) + ", which does not have it")
        .in(path)
        .hint("some of the files may be from another version of the model");
  }
}

std::uint64_t distance(std::string_view a, std::string_view b) {
  std::vector<std::uint64_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::uint64_t corner = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::uint64_t change = corner + (a[i - 1] == b[j - 1] ? 0 : 1);
      corner = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// The most similar name, for a hint. Empty if no name is similar, or if there are too many to
// compare.
std::string closest(std::string_view name, const std::vector<Tensor>& tensors) {
  constexpr std::size_t kMostCompared = 20'000, kLongest = 200;
  if (tensors.empty() || tensors.size() > kMostCompared || name.size() > kLongest) return "";
  const auto best = std::ranges::min_element(tensors, {}, [&](const Tensor& tensor) {
    return tensor.name.size() > kLongest ? UINT64_MAX : distance(name, tensor.name);
  });
  return 2 * distance(name, best->name) <= name.size() ? best->name : "";
}

}  // namespace

Weights::Impl::Impl(const std::string& path, const WeightsOptions& options)
    : budget(options.budget), asked(options.engine) {
  RemoteOpening opening;  // shares what is learnt about URLs between the steps below
  const Files files = files_of(path, budget);
  opening.look_up(files.paths);
  for (const std::string& file : files.paths) {
    const Source source = open_source(file);
    TensorTable table = read_table(source, budget);
    if (!format.empty() && format != table.format) {
      throw Error(ErrorKind::kFormat, "open",
                  "is " + std::string(table.format) + ", but " + visible(files.paths.front()) +
                      " is " + format)
          .in(file);
    }
    format = table.format;
    bookkeeping.push_back(budget.reserve(table_memory(table), "names and places of tensors"));
    bookkeeping.back().keep_in_children();
    metadata.merge(table.metadata);
    const auto number = static_cast<std::uint32_t>(layout.segments.size());
    for (Tensor& tensor : table.tensors) tensor.file = number;
    tensors.insert(tensors.end(), std::make_move_iterator(table.tensors.begin()),
                   std::make_move_iterator(table.tensors.end()));
    append(layout, {.format = table.format,
                    .dtype = DType::of<std::uint8_t>(),
                    .shape = {source.identity.size},
                    .row_bytes = 1,
                    .segment = source.segment(0, source.identity.size)});
  }
  layout.format = format;
  layout.dtype = DType::of<std::uint8_t>();
  layout.shape = {layout.rows};
  layout.row_bytes = 1;
  if (files.index) keep_indexed(tensors, *files.index, path);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (by_name.emplace(tensors[i].name, i).second) continue;
    throw Error(ErrorKind::kFormat, "open",
                "two files have a tensor \"" + printable(tensors[i].name) + '"')
        .in(layout.paths[tensors[i].file])
        .hint("open the files of one model only; its index says which they are");
  }
  engine = make_engine(options.engine, layout, budget, kNeverMap,
                       "weights are read once, so mapping them does not help");
  live_.begin(LiveKind::kWeights, *this);
}

JobRun Weights::Impl::run_of(const Tensor& tensor, std::byte* out) const {
  const auto fits = [&](const Segment& file) {
    return tensor.offset <= file.rows && tensor.bytes <= file.rows - tensor.offset;
  };
  if (tensor.file >= layout.segments.size() || !fits(layout.segments[tensor.file])) {
    throw Error(ErrorKind::kInvalid, "weights",
                "tensor \"" + printable(tensor.name) + "\" is not in these files: file " +
                    with_commas(tensor.file) + ", " + with_commas(tensor.bytes) +
                    " bytes from offset " + with_commas(tensor.offset))
        .in(layout.paths.front())
        .hint("use tensors of this Weights object, not of another");
  }
  return {row_of(tensor.file, tensor.offset), tensor.bytes, out};
}

struct LoadedTensor::Memory {
  Pages pages;
};

LoadedTensor::LoadedTensor(std::unique_ptr<Memory> memory, std::span<std::byte> bytes)
    : memory_(std::move(memory)), bytes_(bytes) {}
LoadedTensor::LoadedTensor(LoadedTensor&&) noexcept = default;
LoadedTensor& LoadedTensor::operator=(LoadedTensor&&) noexcept = default;
LoadedTensor::~LoadedTensor() = default;

Weights::Weights(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Weights::Weights(Weights&&) noexcept = default;
Weights& Weights::operator=(Weights&&) noexcept = default;
Weights::~Weights() = default;

Weights Weights::open(const std::string& path, const WeightsOptions& options) {
  return Weights(std::make_shared<Impl>(path, options));
}

Weights::Impl& Weights::impl() const {
  if (!impl_) throw Error(ErrorKind::kClosed, "weights", "the weights are closed");
  return *impl_;
}

const std::string& Weights::format() const { return impl().format; }
const std::vector<std::string>& Weights::paths() const { return impl().layout.paths; }
const std::vector<Tensor>& Weights::tensors() const { return impl().tensors; }
const std::map<std::string, std::string>& Weights::metadata() const { return impl().metadata; }
const Budget& Weights::budget() const { return impl().budget; }
EngineReport Weights::engine() const { return impl().engine->report(); }
void Weights::close() { impl_.reset(); }

const Tensor* Weights::find(std::string_view name) const {
  const auto found = impl().by_name.find(name);
  return found == impl().by_name.end() ? nullptr : &impl().tensors[found->second];
}

const Tensor& Weights::at(std::string_view name) const {
  if (const Tensor* tensor = find(name)) return *tensor;
  const std::string near = closest(name, tensors());
  throw Error(
      ErrorKind::kIndex, "weights",
      "there is no tensor \"" + printable(name) + "\" among " + with_commas(tensors().size()))
      .in(paths().front())
      .hint(near.empty() ? "all names are in tensors" : "did you mean \"" + visible(near) + "\"?");
}

std::uint64_t Weights::bytes() const {
  std::uint64_t sum = 0;
  for (const Tensor& tensor : tensors()) sum += tensor.bytes;
  return sum;
}

ArrayStats Weights::stats() const { return impl().stats(); }

std::optional<LiveFigures> Weights::Impl::live_figures() const {
  LiveFigures figures;
  figures.reads = stats();
  return figures;
}

LiveLabels Weights::Impl::live_labels() const {
  LiveLabels labels;
  labels.path = layout.paths.front();
  labels.files = layout.paths.size();
  labels.format = format;
  labels.engine = engine_name(engine->report().chosen);
  return labels;
}

ArrayStats Weights::Impl::engine_stats() const {
  return engine ? stats_of_engine(engine->totals()) : ArrayStats();
}

ArrayStats Weights::Impl::stats() const { return reads_since(engine_stats(), before_fork_.get()); }

void Weights::read(const Tensor& tensor, std::span<std::byte> out) const {
  if (out.size() != tensor.bytes) {
    throw Error(ErrorKind::kInvalid, "read",
                "tensor \"" + printable(tensor.name) + "\" has " + with_commas(tensor.bytes) +
                    " bytes, but the memory passed in has " + with_commas(out.size()));
  }
  const JobRun run = impl().run_of(tensor, out.data());
  if (out.empty()) return;
  GroupReader reader(impl_, {{{run}, false}}, 1);
  while (reader.next()) {
  }
}

std::vector<LoadedTensor> Weights::load(std::span<const Tensor* const> wanted) const {
  const Impl& weights = impl();  // throws if they are closed, also if nothing is wanted
  std::vector<LoadedTensor> loaded;
  std::vector<ReadGroup> groups;
  std::uint64_t small_bytes = 0;
  ReadGroup small;
  for (const Tensor* tensor : wanted) {
    JobRun run = weights.run_of(*tensor, nullptr);
    // The read that begins with the first byte begins at a page of this memory, so that direct I/O
    // can read into it.
    const std::uint64_t alignment = weights.engine->limits().alignment;
    const std::uint64_t lead = tensor->offset % alignment;
    auto memory = std::make_unique<LoadedTensor::Memory>();
    if (tensor->bytes > 0) {
      memory->pages = Pages(lead + tensor->bytes + alignment, "a tensor");
    }
    std::byte* const out = memory->pages ? memory->pages.data() + lead : nullptr;
    run.out = out;
    loaded.push_back(LoadedTensor(std::move(memory), {out, tensor->bytes}));
    if (tensor->bytes >= kOwnPages) {
      groups.push_back({{run}, true});
    } else if (tensor->bytes > 0) {
      small.runs.push_back(run);
      small_bytes += tensor->bytes;
      if (small_bytes >= kGroupBytes || small.runs.size() == kGroupRuns) {
        groups.push_back(std::exchange(small, {}));
        small_bytes = 0;
      }
    }
  }
  if (!small.runs.empty()) groups.push_back(std::move(small));
  GroupReader reader(impl_, std::move(groups), SIZE_MAX, UINT64_MAX, /*fresh=*/true);
  while (reader.next()) {
  }
  return loaded;
}

Array Weights::array(const Tensor& tensor) const {
  if (tensor.dtype) return make_array(impl(), tensor, *tensor.dtype);
  throw Error(ErrorKind::kInvalid, "weights",
              "tensor \"" + printable(tensor.name) + "\" holds " + printable(tensor.type) +
                  ", which no array dtype can represent")
      .in(paths().front())
      .hint("read its bytes with read()");
}

// Uses the files that were opened: other files may have their names by now.
Array make_array(const Weights::Impl& impl, const Tensor& tensor, DType dtype) {
  impl.run_of(tensor, nullptr);
  Segment segment = impl.layout.segments[tensor.file];
  const auto fail = [&](const std::string& problem) {
    return Error(ErrorKind::kInvalid, "weights",
                 "tensor \"" + printable(tensor.name) + "\" of shape " + shape_text(tensor.shape) +
                     problem)
        .in(segment.path);
  };
  const std::vector<std::uint64_t> shape =
      tensor.shape.empty() ? std::vector<std::uint64_t>{1} : tensor.shape;
  const auto size = measure(shape, dtype.size);
  if (!size || size->bytes != tensor.bytes) {
    throw fail(" has " + with_commas(tensor.bytes) + " bytes, which does not fit dtype " +
               dtype.name());
  }
  if (size->row_bytes == 0) {
    throw fail(": its rows have no bytes").hint("there is nothing to read");
  }
  segment.data_offset = tensor.offset;
  segment.rows = size->rows;
  Layout layout{.format = impl.format,
                .dtype = dtype,
                .swapped = needs_swap(dtype, /*big_endian=*/false),
                .fortran = false,
                .shape = shape,
                .rows = 0,
                .row_bytes = size->row_bytes,
                .segments = {},
                .paths = {}};
  append(layout, {.format = impl.format,
                  .dtype = dtype,
                  .shape = shape,
                  .row_bytes = size->row_bytes,
                  .segment = std::move(segment)});
  return Internals::make(std::move(layout), {.budget = impl.budget, .engine = impl.asked});
}

}  // namespace evenkeel
