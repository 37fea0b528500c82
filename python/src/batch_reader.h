// Batches of a loader as Python gets them: what the readers of tokens and of rows have in common.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>

#include "array/read_ahead.h"
#include "evenkeel/error.h"
#include "src/interruptible.h"
#include "src/stats.h"

namespace evenkeel::python {

// Batches one by one, each in arrays of the caller's own. Several threads may use it: each batch is
// given out once. The GIL guards its members; waiting is done without it. `Loader` is the
// implementation of a C++ loader, `State` its state.
template <class Loader, class State>
class BatchReader {
 public:
  explicit BatchReader(std::shared_ptr<Loader> loader) : loader_(std::move(loader)) {}
  virtual ~BatchReader() = default;
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // The next batch; None after the last. What a signal handler raises while a batch is waited for
  // is thrown, and the batch comes with the next call.
  nanobind::object take() {
    const std::shared_ptr<Loader> loader = open();
    if (undelivered_.is_valid()) return std::exchange(undelivered_, nanobind::object());
    auto lent = std::make_unique<typename Loader::Lent>();
    {
      const WithoutGil without;
      for (;;) {
        const auto outcome = loader->lend(*lent, ReadAhead::Clock::now() + kSignalInterval);
        if (outcome == ReadAhead::Outcome::kEnd) {
          lent = nullptr;
          break;
        }
        if (outcome == ReadAhead::Outcome::kTaken) break;
        without.check_signals();
      }
    }
    if (!lent) return nanobind::none();
    undelivered_step_ = lent->batch.step();
    nanobind::object batch = arrays_of(std::move(*lent));
    // A signal that came meanwhile is handled here, where the batch is not lost.
    if (PyErr_CheckSignals() != 0) {
      undelivered_ = std::move(batch);
      throw nanobind::python_error();
    }
    return batch;
  }
  // For `take` to give again: a batch that could not be delivered.
  void put_back(nanobind::object batch) { undelivered_ = std::move(batch); }

  // As Python's iterators do. `deliver`, if it is set, makes what the user gets.
  nanobind::object next(nanobind::handle self) {
    nanobind::object batch = deliver.is_none() ? take() : nanobind::object(deliver(self));
    if (batch.is_none()) throw nanobind::stop_iteration();
    return transform.is_none() ? batch : nanobind::object(transform(batch));
  }

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
    if (undelivered_.is_valid()) return;
    interruptible([loader = open()] { loader->begin_loop(false); });
  }
  std::uint64_t step() const {
    const std::uint64_t next = open()->step();
    return undelivered_.is_valid() ? undelivered_step_ : next;
  }
  void close() {
    undelivered_ = nanobind::object();
    loader_.close();
  }

  nanobind::object convert = nanobind::none();    // from an ndarray to what the user gets
  nanobind::object deliver = nanobind::none();    // takes this reader, returns a batch or None
  nanobind::object transform = nanobind::none();  // from a batch to what the user gets

 protected:
  virtual nanobind::object arrays_of(typename Loader::Lent lent) = 0;

 private:
  // A move that a signal handler interrupts still takes place. One that is refused does not, and
  // the batch that was not delivered stays the next one.
  template <class Work>
  void move(Work work) {
    try {
      interruptible(std::move(work));
    } catch (const nanobind::python_error&) {
      undelivered_ = nanobind::object();
      throw;
    }
    undelivered_ = nanobind::object();
  }

  ReaderHandle<Loader> loader_;
  nanobind::object undelivered_;  // a batch that was taken when a signal handler raised
  std::uint64_t undelivered_step_ = 0;
};

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
         "Called with each ndarray; gives what the user gets. None: the ndarray.");
  object("deliver", &Reader::deliver,
         "Called with this reader instead of `take` by `next`. None: `take`.");
  object("transform", &Reader::transform,
         "Called with each batch by `next`; gives what the user gets. None: the batch.");
  type.def("put_back", &Reader::put_back, "batch"_a, "For `take` to give again.")
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
          "What was read, and from where: counters since the data was opened, as of Array.stats. "
          "Without a mixture they are those of the data itself.")
      .def_prop_ro("next_step", &Reader::step)
      .def_prop_ro(
          "size", [](const Reader& reader) { return reader.open()->size(); },
          "Batches of one loop; 0: it does not end.")
      .def_prop_ro("buffers", [](const Reader& reader) { return reader.open()->buffers(); })
      .def_prop_ro("epoch_samples",
                   [](const Reader& reader) { return reader.open()->epoch_samples(); });
}

}  // namespace evenkeel::python
