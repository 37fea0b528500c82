// Chunks on their way to Python, and the memory in which they get there.
#pragma once

#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "array/chunks.h"
#include "evenkeel/array.h"

namespace evenkeel::python {

// A chunk is handed out in the pages into which it was read. They come back when the array and all
// its views are gone, and later chunks are read into them: a loop that lets go of its arrays goes
// round in the same few, and touches no new memory, which would take as long as reading it from a
// fast disk. Whoever keeps arrays keeps their pages. The GIL guards it; it is released while a
// chunk is waited for.
class ChunkStream : public std::enable_shared_from_this<ChunkStream> {
 public:
  // `held` pays for what a loop holds beside the buffers of `chunks`.
  ChunkStream(Chunks chunks, Reservation held)
      : chunks_(std::move(chunks)), held_(std::move(held)) {}

  using Array = nanobind::ndarray<nanobind::numpy, std::uint8_t, nanobind::ndim<1>>;
  // The next chunk, which there must be, and its rows' numbers if there is room for them. Throws
  // what signal handlers raise meanwhile, and is closed then.
  Array next(std::span<std::int64_t> numbers);
  // The next chunk is number `chunk`.
  void seek(std::uint64_t chunk);
  // Arrays that are still there keep their pages.
  void close();
  bool closed() const { return !chunks_; }

 private:
  struct Lent;
  void advance();
  void give_up();
  Array hand_out(Pages pages, std::span<const std::byte> bytes);
  Array copy_out(std::span<const std::byte> bytes);
  void give_back(Pages pages);

  std::optional<Chunks> chunks_;
  Reservation held_;
  Chunk chunk_;
  bool busy_ = false;  // `chunks_` is in use without the GIL
  Pages spare_;        // came back when it could not be used
};

}  // namespace evenkeel::python
