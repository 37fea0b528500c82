#include "src/chunk_stream.h"

#include <chrono>
#include <cstring>

#include "array/internal.h"
#include "evenkeel/error.h"
#include "src/lent_array.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;
using Outcome = ReadAhead::Outcome;

// Sets a flag for a scope.
class Busy {
 public:
  explicit Busy(bool& flag) : flag_(flag) {
    if (flag) {
      throw Error(ErrorKind::kInvalid, "chunks", "another thread is reading the next chunk")
          .hint("use one loop in each thread");
    }
    flag_ = true;
  }
  ~Busy() { flag_ = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  bool& flag_;
};

Error no_more() { return Error(ErrorKind::kInvalid, "chunks", "there are no more"); }

}  // namespace

void ChunkStream::note(const Chunk& chunk, Taken& taken, bool with_numbers) {
  taken.bytes = chunk.bytes();
  if (!with_numbers) return;
  taken.numbers.resize(chunk.size());
  for (std::size_t i = 0; i < chunk.size(); ++i) taken.numbers[i] = chunk.index(i);
}

Chunks::Impl& ChunkStream::Source::impl() const { return Internals::of(chunks); }
bool ChunkStream::Source::close(std::optional<ReadAhead::Clock::time_point> deadline) {
  return impl().close(deadline);
}
bool ChunkStream::Source::owned_here() const { return impl().owned_here(); }

ChunkStream::ChunkStream(Chunks chunks, Reservation held)
    : source_(std::make_shared<Source>(Source{std::move(chunks), std::move(held)})) {}

ChunkStream::Array ChunkStream::next(std::span<std::int64_t> numbers) {
  const std::shared_ptr<Source> source = source_.get();
  if (!source) throw Error(ErrorKind::kClosed, "chunks", "used after close");
  const Busy busy(busy_);
  std::shared_ptr<Taken> taken = std::exchange(undelivered_, nullptr);
  if (!taken) {
    try {
      taken = source->impl().in_place() ? take_copy(source, !numbers.empty())
                                        : take(source, !numbers.empty());
    } catch (const nb::python_error&) {
      throw;
    } catch (...) {
      if (source->owned_here()) source_.drop();
      throw;
    }
  }
  // Signals that arrived meanwhile are handled here, where the chunk is not lost.
  if (PyErr_CheckSignals() != 0) {
    undelivered_ = std::move(taken);
    throw nb::python_error();
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::int64_t>(taken->numbers[i]);
  }
  const std::span<const std::byte> bytes = taken->bytes;
  auto* data = const_cast<std::byte*>(bytes.data());  // it is in the memory of the loan
  if (bytes.size() >= kWorthLending)
    return {data, {bytes.size()}, owner_of(std::move(taken->loan))};
  auto copy = std::make_unique_for_overwrite<std::byte[]>(bytes.size());
  std::memcpy(copy.get(), data, bytes.size());
  data = copy.get();
  return {data, {bytes.size()}, owner_of(std::move(copy))};
}

void ChunkStream::seek(std::uint64_t chunk) {
  const std::shared_ptr<Source> source = source_.get();
  if (!source) throw Error(ErrorKind::kClosed, "chunks", "used after close");
  const Busy busy(busy_);
  try {
    interruptible([source, chunk] { source->chunks.seek(chunk); });
  } catch (const nb::python_error&) {
    // The worker continues the seek, so the position of the source is unknown.
    undelivered_ = nullptr;
    source_.drop();
    throw;
  }
  undelivered_ = nullptr;
}

std::shared_ptr<ChunkStream::Taken> ChunkStream::take(const std::shared_ptr<Source>& source,
                                                      bool with_numbers) {
  auto taken = std::make_shared<Taken>();
  const auto use = [&](const Chunk& chunk) { note(chunk, *taken, with_numbers); };
  const WithoutGil without;
  for (;;) {
    const auto deadline = ReadAhead::Clock::now() + kSignalInterval;
    const Outcome outcome = source->impl().lend(use, taken->loan, deadline);
    if (outcome == Outcome::kTaken) return taken;
    if (outcome == Outcome::kEnd) throw no_more();
    without.check_signals();
  }
}

// Copies a chunk out of a mapped file. The copy waits for the disk if the file is not in memory. If
// it is abandoned, its chunk is lost, so the stream is closed.
std::shared_ptr<ChunkStream::Taken> ChunkStream::take_copy(const std::shared_ptr<Source>& source,
                                                           bool with_numbers) {
  const auto copy = [source, with_numbers] {
    auto taken = std::make_shared<Taken>();
    Chunks::Impl& chunks = source->impl();
    const Outcome outcome = chunks.lend(
        [&](const Chunk& chunk) { note(chunk, *taken, with_numbers); }, taken->loan, {});
    if (outcome == Outcome::kEnd) throw no_more();
    if (taken->loan) return taken;
    const std::span<const std::byte> bytes = taken->bytes;
    taken->loan = chunks.take_spare();
    std::memcpy(taken->loan.data(), bytes.data(), bytes.size());
    if (chunks.at_end()) taken->loan.trim(taken->loan.data() + bytes.size());
    taken->bytes = {taken->loan.data(), bytes.size()};
    return taken;
  };
  try {
    return interruptible(copy);
  } catch (const nb::python_error&) {
    source_.drop();
    throw;
  }
}

}  // namespace evenkeel::python
