// Returns chunks in arrays that the user owns.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <optional>
#include <tuple>

#include "array/internal.h"
#include "evenkeel/error.h"
#include "src/bind.h"
#include "src/chunk_stream.h"
#include "src/interruptible.h"
#include "src/reader.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

using RowNumbersOut = nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class ChunkReader {
 public:
  ChunkReader(std::shared_ptr<ChunkStream> stream, std::uint64_t rows, std::uint64_t chunk_rows)
      : stream_(std::move(stream)), rows_(rows), chunk_rows_(chunk_rows) {}
  ~ChunkReader() = default;
  ChunkReader(const ChunkReader&) = delete;
  ChunkReader& operator=(const ChunkReader&) = delete;

  // The number of rows in the next chunk; 0 after the last.
  std::uint64_t next() const { return closed() ? 0 : std::min(left(), chunk_rows_); }
  // Number of the next chunk.
  std::uint64_t position() const { return position_; }

  // The next chunk, and the numbers of its rows if there is room for them.
  ChunkStream::Array read(const std::optional<RowNumbersOut>& numbers) {
    const InUse in_use(*this);
    const std::uint64_t count = next();
    if (numbers && numbers->size() != count) {
      throw Error(ErrorKind::kInvalid, "chunks", "`numbers` does not have the size of the chunk");
    }
    ChunkStream::Array rows =
        stream_->next(numbers ? std::span(numbers->data(), count) : std::span<std::int64_t>());
    ++position_;
    if (left() == 0) stream_->drop();  // not `close`: a signal handler could raise in it
    return rows;
  }

  // Makes `chunk` the next chunk. Chunks are counted from 0; the number after the last is the end.
  void seek(std::uint64_t chunk) {
    const InUse in_use(*this);
    stream_->seek(chunk);
    position_ = chunk;
    if (left() == 0) stream_->drop();
  }

  // A thread that waits in `read` gets Error (kClosed).
  void close() { stream_->close(); }
  void drop() { stream_->drop(); }
  bool closed() const { return stream_->closed(); }

 private:
  // One call at a time. Python code serializes threads; a reentrant call from a signal handler gets
  // an error.
  class InUse {
   public:
    explicit InUse(ChunkReader& reader) : reader_(reader) {
      if (reader.in_use_) {
        throw Error(ErrorKind::kInvalid, "batches", "called again before the last call returned");
      }
      if (reader.closed()) throw Error(ErrorKind::kClosed, "batches", "used after close");
      reader.in_use_ = true;
    }
    ~InUse() { reader_.in_use_ = false; }
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;

   private:
    ChunkReader& reader_;
  };

  // Rows still to come. No overflow: the stream has checked the position.
  std::uint64_t left() const { return rows_ - std::min(rows_, position_ * chunk_rows_); }

  const std::shared_ptr<ChunkStream> stream_;
  const std::uint64_t rows_;  // in total
  const std::uint64_t chunk_rows_;
  std::uint64_t position_ = 0;
  bool in_use_ = false;
};

[[noreturn]] void refuse(const Reader& reader, std::uint64_t chunk_rows, bool in_order) {
  const std::shared_ptr<Array> shared = reader.array();
  const Array& array = *shared;
  const std::uint64_t row = array.row_bytes(), left = array.budget().left();
  // The loop holds one chunk; from a mapped file, it and the next one are copies.
  const std::uint64_t fitting = interruptible([shared, in_order] {
    const std::uint64_t copies = shared->engine().chosen == EngineKind::kMap ? 2 : 1;
    return Internals::of(*shared).chunk_rows_that_fit(in_order, copies);
  });
  throw Error(ErrorKind::kBudget, "chunks",
              "chunks of " + with_commas(chunk_rows) + " rows of " + with_commas(row) +
                  " bytes do not fit: the loop holds one while the next is read, and " +
                  with_commas(left) + " bytes are left of a budget of " + array.budget().describe())
      .in(array.paths().front())
      .hint(fitting > 0 ? "use at most " + with_commas(fitting) + " rows at a time"
                        : "raise the budget: one row and its read buffers do not fit");
}

// Memory of the chunks that the loop holds besides the buffers. Chunks of a mapped file are copies,
// and there are two of them: the current one and the next.
Reservation room_for_loop(Reader& reader, std::uint64_t chunk_bytes) {
  const auto mapped = [&] { return reader.engine().chosen == EngineKind::kMap; };
  const std::string what = "chunks that the loop holds";
  if (mapped()) {
    Reservation room = reader.room_for(2 * chunk_bytes, what);
    if (mapped()) return room;
  }
  return reader.room_for(chunk_bytes, what);
}

using Blocks = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;

Order make_order(bool shuffle, const std::optional<Blocks>& blocks, std::uint64_t seed,
                 std::uint64_t epoch) {
  if (blocks) {
    const auto [block_rows, window_blocks, streams] = *blocks;
    return block_shuffled(seed, epoch, {block_rows, window_blocks, streams});
  }
  return shuffle ? shuffled(seed, epoch) : sequential().at_epoch(epoch);
}

Blocks choose(std::uint64_t row_bytes, std::uint64_t budget, std::uint64_t world,
              std::uint64_t block_rows, std::uint64_t window_rows, std::uint64_t streams,
              std::uint64_t sets, std::uint64_t step_rows) {
  const BlockOptions blocks = choose_blocks({.row_bytes = row_bytes,
                                             .budget = budget,
                                             .world = world,
                                             .block_rows = block_rows,
                                             .window_rows = window_rows,
                                             .streams = streams,
                                             .sets = sets,
                                             .step_rows = step_rows});
  return {blocks.block_rows, blocks.window_blocks, blocks.streams};
}

std::unique_ptr<ChunkReader> make_now(Reader& reader, std::uint64_t rows, bool shuffle,
                                      std::uint64_t seed, std::uint64_t epoch, std::uint64_t rank,
                                      std::uint64_t world, const std::optional<Blocks>& blocks) {
  if (rows == 0) throw Error(ErrorKind::kInvalid, "chunks", "a chunk of 0 rows");
  const Order order = make_order(shuffle, blocks, seed, epoch).for_rank(rank, world);
  const std::uint64_t all = Sequence(order, reader.array()->rows()).size();
  const std::uint64_t row_bytes = reader.array()->row_bytes();
  rows = std::min(rows, std::max<std::uint64_t>(all, 1));
  try {
    Reservation held = room_for_loop(reader, rows * row_bytes);
    Chunks chunks =
        interruptible([array = reader.array(), rows, order] { return array->chunks(rows, order); });
    auto stream = std::make_shared<ChunkStream>(std::move(chunks), std::move(held));
    return std::make_unique<ChunkReader>(std::move(stream), all, rows);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBudget || blocks)
      throw;  // with blocks, it already has the arithmetic
  }
  refuse(reader, rows, !shuffle && world == 1);
}

std::unique_ptr<ChunkReader> make(Reader& reader, std::uint64_t rows, bool shuffle,
                                  std::uint64_t seed, std::uint64_t epoch, std::uint64_t rank,
                                  std::uint64_t world, const std::optional<Blocks>& blocks) {
  try {
    return make_now(reader, rows, shuffle, seed, epoch, rank, world, blocks);
  } catch (const Error& error) {
    // The reader of the epoch before may still be closing, and holds its buffers meanwhile.
    if (error.kind() != ErrorKind::kBudget || !wait_for_background()) throw;
  }
  return make_now(reader, rows, shuffle, seed, epoch, rank, world, blocks);
}

}  // namespace

void bind_chunks(nb::module_& module) {
  nb::class_<ChunkReader>(module, "ChunkReader", "Reads chunks ahead.")
      .def("next", &ChunkReader::next, "Rows of the next chunk; 0 after the last.")
      .def("read", &ChunkReader::read, "numbers"_a = nb::none(),
           "The bytes of the next chunk, in memory that the caller owns.")
      .def("seek", &ChunkReader::seek, "chunk"_a, "Makes this chunk the next one.")
      .def("close", &ChunkReader::close)
      .def("drop", &ChunkReader::drop, "Closes it without waiting for the disk.")
      .def_prop_ro("position", &ChunkReader::position, "Number of the next chunk.")
      .def_prop_ro("closed", &ChunkReader::closed);
  module.def("chunks", &make, "reader"_a, "rows"_a, "shuffle"_a, "seed"_a, "epoch"_a, "rank"_a,
             "world"_a, "blocks"_a = nb::none());
  module.def("choose_blocks", &choose, "row_bytes"_a, "budget"_a, "world"_a, "block_rows"_a,
             "window_rows"_a, "streams"_a, "sets"_a = 1, "step_rows"_a = 0,
             "Rows per block, blocks per window and streams of the order `blocks`; numbers that "
             "are 0 are chosen.");
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&interpreter_ends));
}

}  // namespace evenkeel::python
