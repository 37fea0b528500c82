// Batches of a loader for Python: shared code of the readers of tokens and of rows.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "array/read_ahead.h"
#include "evenkeel/error.h"
#include "evenkeel/order.h"
#include "src/interruptible.h"
#include "src/stats.h"

namespace evenkeel::python {

// Returns batches one by one, each in arrays that the caller owns. Several threads may use it: each
// batch is returned once. The GIL guards the members; threads wait without it. `Loader` is the
// implementation of a C++ loader, `State` its state.
template <class Loader, class State>
class BatchReader {
 public:
  using LoaderState = State;
  explicit BatchReader(std::shared_ptr<Loader> loader) : loader_(std::move(loader)) {}
  virtual ~BatchReader() = default;
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // The next batch; None after the last. If a signal handler raises while this waits, the exception
  // is thrown, and the next call returns the batch.
  nanobind::object take() {
    const std::shared_ptr<Loader> loader = open();
    if (undelivered_.is_valid()) return std::exchange(undelivered_, nanobind::object());
    SharedLent lent = std::exchange(unmade_, nullptr);
    if (!lent) lent = wait(*loader);
    if (!lent) return nanobind::none();
    taken_step_ = lent->batch.step();
    taken_stands_ = true;
    const std::uint64_t moves = moves_;
    try {
      nanobind::object batch = arrays_of(lent);
      // Signals that arrived meanwhile are handled here, where the batch is not lost.
      if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
      return batch;
    } catch (...) {
      if (moves == moves_) unmade_ = std::move(lent);
      throw;
    }
  }
  // Makes `take` return its last batch again, because it could not be delivered.
  void put_back(nanobind::object batch) {
    if (taken_stands_) undelivered_ = std::move(batch);
  }
  // For the batch that `take` returned last; false: the reader has moved since.
  std::uint64_t taken_step() const { return taken_step_; }
  bool taken_stands() const { return taken_stands_; }

  // Implements Python's __next__. `deliver`, if it is set, returns the batch for the user.
  nanobind::object next(nanobind::handle self) {
    nanobind::object batch = deliver.is_none() ? take() : nanobind::object(deliver(self));
    if (delivering_here()) delivering_ = 0;
    if (batch.is_none()) throw nanobind::stop_iteration();
    return transform.is_none() ? batch : nanobind::object(transform(batch));
  }

  // For `deliver`: this thread is about to return a batch. It stays set until `next` has it.
  void begin_delivery() { delivering_ = PyThread_get_thread_ident(); }
  bool delivering_here() const { return delivering_ == PyThread_get_thread_ident(); }

  std::shared_ptr<Loader> open() const {
    if (loader_.get()) return loader_.get();
    throw Error(ErrorKind::kClosed, "loader", "used after close").hint("create a new loader");
  }
  void seek(std::uint64_t step) {
    move([loader = open(), step] { loader->seek(step); });
  }
  void load(const std::string& state) {
    move([loader = open(), parsed = State::parse(state)] { loader->load(parsed); });
  }
  void begin_loop() {
    if (holds_batch()) return;
    interruptible([loader = open()] { loader->begin_loop(false); });
  }
  std::uint64_t step() const {
    const std::uint64_t next = open()->step();
    if (unmade_) return unmade_->batch.step();
    return undelivered_.is_valid() ? taken_step_ : next;
  }
  void close() {
    forget();
    loader_.close();
  }

  // For Python's collector of cycles: the user's functions may refer to their loader.
  int visit_objects(visitproc visit, void* arg) const {
    for (const nanobind::object* one : {&convert, &deliver, &transform, &undelivered_}) {
      Py_VISIT(one->ptr());
    }
    return 0;
  }
  void clear_objects() {
    convert = deliver = transform = nanobind::none();
    undelivered_ = nanobind::object();
  }

  nanobind::object convert = nanobind::none();    // from an ndarray to what the user gets
  nanobind::object deliver = nanobind::none();    // takes this reader, returns a batch or None
  nanobind::object transform = nanobind::none();  // from a batch to what the user gets

 protected:
  using SharedLent = std::shared_ptr<typename Loader::Lent>;
  // The arrays own `lent` if they use its memory. After it has thrown, it is called again for the
  // same batch.
  virtual nanobind::object arrays_of(const SharedLent& lent) = 0;

 private:
  // Null after the last batch.
  SharedLent wait(Loader& loader) const {
    auto lent = std::make_shared<typename Loader::Lent>();
    const WithoutGil without;
    for (;;) {
      const auto outcome = loader.lend(*lent, ReadAhead::Clock::now() + kSignalInterval);
      if (outcome == ReadAhead::Outcome::kEnd) return nullptr;
      if (outcome == ReadAhead::Outcome::kTaken) return lent;
      without.check_signals();
    }
  }
  bool holds_batch() const { return undelivered_.is_valid() || unmade_; }
  void forget() {
    ++moves_;
    taken_stands_ = false;
    unmade_ = nullptr;
    undelivered_ = nanobind::object();
  }

  // A seek that a signal handler interrupts still takes place. If a seek is refused, the batch that
  // was not delivered stays the next one.
  template <class Work>
  void move(Work work) {
    try {
      interruptible(std::move(work));
    } catch (const nanobind::python_error&) {
      forget();
      throw;
    }
    forget();
  }

  ReaderHandle<Loader> loader_;
  // A batch that was taken when a signal handler raised: its arrays, or the memory they are made
  // from.
  nanobind::object undelivered_;
  SharedLent unmade_;
  std::uint64_t taken_step_ = 0;
  bool taken_stands_ = false;
  std::uint64_t moves_ = 0;
  unsigned long delivering_ = 0;  // the thread, or 0
};

// For the type of a reader.
template <class Reader>
const PyType_Slot* collector_slots() {
  static const auto traverse = [](PyObject* self, visitproc visit, void* arg) -> int {
    Py_VISIT(Py_TYPE(self));
    if (!nanobind::inst_ready(self)) return 0;
    return nanobind::inst_ptr<Reader>(self)->visit_objects(visit, arg);
  };
  static const auto clear = [](PyObject* self) -> int {
    if (nanobind::inst_ready(self)) nanobind::inst_ptr<Reader>(self)->clear_objects();
    return 0;
  };
  static const PyType_Slot slots[] = {
      {Py_tp_traverse, reinterpret_cast<void*>(static_cast<traverseproc>(traverse))},
      {Py_tp_clear, reinterpret_cast<void*>(static_cast<inquiry>(clear))},
      {0, nullptr}};
  return slots;
}

// Rows per block, blocks per window, streams.
inline std::tuple<std::uint64_t, std::uint64_t, std::uint64_t> tuple_of(
    const BlockOptions& blocks) {
  return {blocks.block_rows, blocks.window_blocks, blocks.streams};
}

// The options that all loaders have.
template <class Options>
void bind_step_options(nanobind::class_<Options>& type) {
  namespace nb = nanobind;
  type.def(nb::init<>())
      .def_rw("batch_size", &Options::batch_size)
      .def_rw("seed", &Options::seed)
      .def_prop_rw(
          "blocks", [](const Options& options) { return tuple_of(options.blocks); },
          [](Options& options, const std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>& of) {
            options.blocks = {std::get<0>(of), std::get<1>(of), std::get<2>(of)};
          },
          nb::for_getter(nb::sig("def blocks(self, /) -> tuple[int, int, int]")),
          nb::for_setter(nb::sig("def blocks(self, value: tuple[int, int, int], /) -> None")),
          "Rows per block, blocks per window and streams, for the order blocks.")
      .def_rw("rank", &Options::rank)
      .def_rw("world", &Options::world)
      .def_rw("prefetch", &Options::prefetch, nb::arg().none(), "None: see usual_prefetch.")
      .def_rw("steps", &Options::steps, "0: not given.")
      .def_rw("epochs", &Options::epochs, "0: not given.")
      .def_prop_rw(
          "stride", [](const Options& options) { return options.workers.stride; },
          [](Options& options, std::uint64_t stride) { options.workers.stride = stride; })
      .def_prop_rw(
          "phase", [](const Options& options) { return options.workers.phase; },
          [](Options& options, std::uint64_t phase) { options.workers.phase = phase; })
      .def_prop_rw(
          "keep", [](const Options& options) { return options.buffers.keep; },
          [](Options& options, std::uint32_t keep) { options.buffers.keep = keep; },
          "Batches in the given memory that are still in use when the next one is taken.");
}

// The methods that all readers have.
template <class Reader>
void bind_batch_reader(nanobind::class_<Reader>& type) {
  namespace nb = nanobind;
  using nb::literals::operator""_a;
  const auto object = [&](const char* name, nb::object Reader::*member, const char* doc) {
    const std::string get = std::string("def ") + name + "(self, /) -> object";
    const std::string set = std::string("def ") + name + "(self, value: object, /) -> None";
    type.def_rw(name, member, nb::arg().none(), nb::for_getter(nb::sig(get.c_str())),
                nb::for_setter(nb::sig(set.c_str())), doc);
  };
  object("convert", &Reader::convert,
         "Called with each ndarray; returns what the user gets. None: the ndarray.");
  object("deliver", &Reader::deliver,
         "`next` calls this with the reader instead of `take`. None: `take`.");
  object("transform", &Reader::transform,
         "`next` calls this with each batch; it returns what the user gets. None: the batch.");
  type.def("put_back", &Reader::put_back, "batch"_a, "Makes `take` return this batch again.")
      .def("begin_delivery", &Reader::begin_delivery,
           "This thread is about to return a batch from `deliver`.")
      .def_prop_ro("delivering_here", &Reader::delivering_here,
                   "The batch that this thread was about to return has not reached `next`.")
      .def("begin_loop", &Reader::begin_loop)
      .def("seek_step", &Reader::seek, "step"_a)
      .def("load", &Reader::load, "state"_a)
      .def("close_reader", &Reader::close)
      .def(
          "state_at",
          [](const Reader& reader, std::uint64_t step) {
            return reader.open()->state_at(step).text();
          },
          "step"_a)
      .def(
          "stats",
          [](const Reader& reader) {
            return dict_of(interruptible([loader = reader.open()] { return loader->stats(); }));
          },
          nb::sig("def stats(self) -> dict[str, int]"),
          "Counters of what was read since the data was opened, and from where, as in Array.stats. "
          "Without a mixture they are those of the data itself. `batches` is the number of batches "
          "returned, and `batch_wait_ns` the time that the program waited for them.")
      .def_prop_ro("next_step", &Reader::step)
      .def_prop_ro("taken_step", &Reader::taken_step,
                   "The step of the batch that `take` returned last.")
      .def_prop_ro("taken_stands", &Reader::taken_stands,
                   "False: the reader has moved since `take` returned its last batch.")
      .def_prop_ro(
          "size", [](const Reader& reader) { return reader.open()->size(); },
          "Batches of one loop; 0: it does not end.")
      .def_prop_ro(
          "blocks_in_use", [](const Reader& reader) { return tuple_of(reader.open()->blocks()); },
          "Rows per block, blocks per window and streams; all 0 unless the order is blocks.")
      .def_static(
          "blocks_of_state",
          [](const std::string& state) {
            return tuple_of(Reader::LoaderState::parse(state).blocks);
          },
          "state"_a,
          "Rows per block, blocks per window and streams; all 0 unless the order is blocks.")
      .def_prop_ro("buffers", [](const Reader& reader) { return reader.open()->buffers(); })
      .def_prop_ro("epoch_samples",
                   [](const Reader& reader) { return reader.open()->epoch_samples(); });
}

}  // namespace evenkeel::python
