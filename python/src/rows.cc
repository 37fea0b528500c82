// Batches of rows of arrays.
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "evenkeel/loader.h"
#include "loader/pipeline.h"
#include "loader/row_loader.h"
#include "src/batch_reader.h"
#include "src/bind.h"
#include "src/lent_array.h"
#include "src/reader.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

class RowReader final : public BatchReader<Loader::Impl, RowLoaderState> {
 public:
  using Sets = std::vector<std::pair<std::vector<LoaderField>, double>>;
  using Memory = std::vector<std::vector<Bytes>>;

  // `forms` has (dtype, shape of a row) for each field of a C++ batch; for rows of different
  // lengths the shape is that of one of their values. `groups` has (how many of these, a function
  // or None) for each field of the user: the function makes one object of several, None makes a
  // tuple. `keys` is the form of a batch: None, the field alone; a list, a dict with these keys;
  // otherwise a tuple. Batches are put into `memory` if there is any: a place for each field.
  RowReader(const Sets& sets, RowLoaderOptions options, const nb::list& forms,
            const nb::list& groups, nb::object keys, const Memory& memory)
      : BatchReader(make(sets, std::move(options), memory)),
        keys_(std::move(keys)),
        in_memory_(!memory.empty()) {
    for (const nb::handle form : forms) {
      forms_.push_back({nb::borrow(form[0]), nb::borrow<nb::tuple>(form[1])});
    }
    for (const nb::handle group : groups) {
      groups_.push_back({nb::cast<std::size_t>(group[0]), nb::borrow(group[1])});
    }
  }

  // The fields of a batch for the user.
  nb::object structured(const nb::list& fields) const {
    if (keys_.is_none()) return nb::borrow(fields[0]);
    if (!nb::isinstance<nb::list>(keys_)) return nb::tuple(fields);
    nb::dict batch;
    for (std::size_t i = 0; i < nb::len(fields); ++i) batch[keys_[i]] = fields[i];
    return batch;
  }
  bool flat = false;  // `take` returns a list of fields, from which `deliver` makes a batch

 private:
  struct Form {
    nb::object dtype;
    nb::tuple row_shape;
  };
  struct Group {
    std::size_t count;
    nb::object combine;
  };

  static std::shared_ptr<Loader::Impl> make(const Sets& sets, RowLoaderOptions options,
                                            const Memory& memory) {
    for (const auto& batch : memory) {
      auto& fields = options.buffers.memory.emplace_back();
      for (const Bytes& field : batch) fields.push_back(span_of(field));
    }
    std::vector<WeightedRows> mixture;
    for (const auto& [arrays, weight] : sets) {
      WeightedRows& set = mixture.emplace_back(WeightedRows{{}, weight});
      set.fields = arrays;
    }
    const auto buffers = held(memory);  // as long as threads may write there
    return interruptible([mixture = std::move(mixture), options = std::move(options), buffers] {
      return std::shared_ptr<Loader::Impl>(new Loader::Impl(mixture, options, true),
                                           [buffers](Loader::Impl* loader) { delete loader; });
    });
  }

  nb::object arrays_of(const SharedLent& lent) override {
    const RowBatch batch = lent->batch;
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < batch.fields(); ++i) bytes += batch.bytes(i).size();
    nb::list fields;
    if (bytes >= kWorthLending || in_memory_) {
      const nb::capsule owner = owner_of(lent);
      for (std::size_t i = 0; i < batch.fields(); ++i) {
        fields.append(array_of(i, batch.bytes(i), owner));
      }
    } else {
      for (std::size_t i = 0; i < batch.fields(); ++i) {
        const std::span<const std::byte> field = batch.bytes(i);
        auto copy = std::make_unique_for_overwrite<std::byte[]>(field.size());
        std::memcpy(copy.get(), field.data(), field.size());
        const std::span<const std::byte> copied(copy.get(), field.size());
        fields.append(array_of(i, copied, owner_of(std::move(copy))));
      }
    }
    return flat ? fields : structured(grouped(fields));
  }

  nb::object array_of(std::size_t field, std::span<const std::byte> bytes,
                      const nb::capsule& owner) const {
    const Form& form = forms_[field];
    const nb::ndarray<nb::numpy, std::uint8_t> flat_bytes(const_cast<std::byte*>(bytes.data()),
                                                          {bytes.size()}, owner);
    const nb::object view = nb::cast(flat_bytes).attr("view")(form.dtype);
    const nb::object array = view.attr("reshape")(nb::make_tuple(-1) + form.row_shape);
    return convert.is_none() ? array : nb::object(convert(array));
  }

  // Turns the fields of a C++ batch into those of the user.
  nb::list grouped(const nb::list& fields) const {
    nb::list result;
    std::size_t at = 0;
    for (const Group& group : groups_) {
      nb::list parts;
      for (std::size_t i = 0; i < group.count; ++i) parts.append(fields[at++]);
      if (!group.combine.is_none()) {
        result.append(group.combine(*nb::tuple(parts)));
      } else if (group.count == 1) {
        result.append(parts[0]);
      } else {
        result.append(nb::tuple(parts));
      }
    }
    return result;
  }

  std::vector<Form> forms_;
  std::vector<Group> groups_;
  const nb::object keys_;
  const bool in_memory_;
};

nb::list explained_rows(const RowReader& reader, std::uint64_t step) {
  nb::list rows;
  for (const RowOrigin& origin : reader.open()->explain(step)) {
    nb::dict row;
    row["sample"] = origin.sample;
    row["set"] = origin.set;
    row["epoch"] = origin.epoch;
    row["row"] = origin.row;
    row["stage"] = origin.stage;
    rows.append(row);
  }
  return rows;
}

void bind_row_options(nb::module_& module) {
  using Options = RowLoaderOptions;
  nb::class_<Options> type(module, "RowLoaderOptions", "The options of a Loader.");
  bind_step_options(type);
  type.def_prop_rw(
          "order", [](const Options& options) { return order_name(options.order); },
          [](Options& options, const std::string& name) { options.order = parse_order(name); })
      .def_rw("mixture", &Options::mixture)
      .def_rw("drop_last", &Options::drop_last);
}

}  // namespace

void bind_rows(nb::module_& module) {
  bind_row_options(module);
  nb::class_<LoaderField>(module, "LoaderField",
                          "An array or a set of arrays that a loader reads rows from.")
      .def(
          "__init__",
          [](LoaderField* field, const Reader& array) { new (field) LoaderField(*array.array()); },
          "array"_a)
      .def_static(
          "ragged",
          [](const Reader& values, const Reader& offsets) {
            return LoaderField::ragged(*values.array(), *offsets.array());
          },
          "values"_a, "offsets"_a)
      .def_static(
          "csr",
          [](const Reader& data, const Reader& indices, const Reader& indptr, std::uint64_t columns,
             bool dense) {
            return LoaderField::csr(*data.array(), *indices.array(), *indptr.array(), columns,
                                    dense);
          },
          "data"_a, "indices"_a, "indptr"_a, "columns"_a, "dense"_a);
  nb::class_<RowReader> reader(module, "RowReader", nb::type_slots(collector_slots<RowReader>()),
                               "Reads batches of rows ahead.");
  reader
      .def(nb::init<const RowReader::Sets&, RowLoaderOptions, const nb::list&, const nb::list&,
                    nb::object, const RowReader::Memory&>(),
           "sets"_a, "options"_a, "forms"_a, "groups"_a, "keys"_a.none(), "memory"_a,
           nb::sig("def __init__(self, sets: typing.Sequence[tuple[typing.Sequence[LoaderField], "
                   "float]], options: RowLoaderOptions, forms: typing.Sequence[typing.Any], "
                   "groups: typing.Sequence[typing.Any], keys: object, "
                   "memory: typing.Sequence[typing.Sequence[typing.Any]]) -> None"))
      .def("take", &RowReader::take, nb::sig("def take(self) -> typing.Any"),
           "The next batch, in memory that the caller owns; None after the last.")
      .def(
          "__next__", [](nb::handle self) { return nb::cast<RowReader&>(self).next(self); },
          nb::sig("def __next__(self) -> typing.Any"))
      .def_rw("flat", &RowReader::flat, "`take` returns a list of fields.")
      .def("structured", &RowReader::structured, "fields"_a,
           nb::sig("def structured(self, fields: list[typing.Any]) -> typing.Any"),
           "Fields as a batch: alone, as a tuple or as a dict.")
      .def(
          "epoch_at",
          [](const RowReader& reader, std::uint64_t step) { return reader.open()->epoch_of(step); },
          "step"_a, "The epoch of a step; 0 if there are no epochs.")
      .def("explained", &explained_rows, "step"_a,
           nb::sig("def explained(self, step: int) -> list[dict[str, object]]"));
  bind_batch_reader(reader);
  module.def("usual_prefetch", &usual_prefetch, "batch_size"_a, "batch_bytes"_a,
             "How many batches are read ahead by default.");
}

}  // namespace evenkeel::python
