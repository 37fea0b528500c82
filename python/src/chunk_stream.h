// Hands chunks to Python.
#pragma once

#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "array/chunks.h"
#include "evenkeel/array.h"
#include "src/interruptible.h"

namespace evenkeel::python {

// Returns each chunk in the pages into which it was read; see LendingPool. A loop that releases its
// arrays reuses the same few buffers and touches no new memory, which would take as long as reading
// it from a fast disk. The GIL guards this class; it is released while waiting for a chunk.
class ChunkStream {
 public:
  // `held` is the reservation for the chunk that a loop holds besides the buffers of `chunks`.
  ChunkStream(Chunks chunks, Reservation held);

  using Array = nanobind::ndarray<nanobind::numpy, std::uint8_t, nanobind::ndim<1>>;
  // The next chunk, which must exist, and the numbers of its rows if there is room for them. Throws
  // what signal handlers raise meanwhile; the next call then returns the chunk, unless the stream
  // was closed. A failed read closes the stream. One thread at a time: throws Error (kInvalid) for
  // a second one. Throws Error (kClosed) after `close`.
  Array next(std::span<std::int64_t> numbers);
  // Makes `chunk` the next chunk. If a signal handler raises meanwhile, the stream is closed.
  void seek(std::uint64_t chunk);
  // Existing arrays keep their pages. A thread that is in `next` throws.
  void close() { source_.close(); }
  // The same without waiting for the disk.
  void drop() { source_.drop(); }
  bool closed() const { return !source_.get(); }

 private:
  struct Source {
    Chunks chunks;
    Reservation held;
    Chunks::Impl& impl() const;
    bool close(std::optional<ReadAhead::Clock::time_point> deadline);
    bool owned_here() const;
  };
  struct Taken {
    Loan loan;
    std::span<const std::byte> bytes;
    std::vector<std::uint64_t> numbers;
  };
  static void note(const Chunk& chunk, Taken& taken, bool with_numbers);
  std::shared_ptr<Taken> take(const std::shared_ptr<Source>& source, bool with_numbers);
  std::shared_ptr<Taken> take_copy(const std::shared_ptr<Source>& source, bool with_numbers);

  ReaderHandle<Source> source_;
  bool busy_ = false;                   // a thread is in `next`
  std::shared_ptr<Taken> undelivered_;  // taken by a call that a signal handler ended
};

}  // namespace evenkeel::python
