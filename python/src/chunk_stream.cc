#include "src/chunk_stream.h"

#include <chrono>
#include <cstring>
#include <future>
#include <system_error>

#include "base/signals.h"
#include "src/given_up.h"
#include "src/without_gil.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;
using namespace std::chrono_literals;

// Smaller chunks are copied out: pages would be more than they are.
constexpr std::uint64_t kWorthPages = 256_KiB;
// The first piece of a copy; see in_pieces.
constexpr std::uint64_t kCopyPiece = 64_MiB;

ChunkStream::Array small_copy(std::span<const std::byte> bytes) {
  auto copy = std::make_unique_for_overwrite<std::byte[]>(bytes.size());
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  std::byte* const data = copy.release();
  const nb::capsule owner(
      data, [](void* pointer) noexcept { delete[] static_cast<std::byte*>(pointer); });
  return {data, {bytes.size()}, owner};
}

}  // namespace

struct ChunkStream::Lent {
  std::shared_ptr<ChunkStream> from;
  Pages pages;
};

ChunkStream::Array ChunkStream::next(std::span<std::int64_t> numbers) {
  advance();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::int64_t>(chunk_.index(i));
  }
  const std::span<const std::byte> bytes = chunk_.bytes();
  if (bytes.size() < kWorthPages) return small_copy(bytes);
  Chunks::Impl& chunks = chunks_->impl();
  if (!chunks.in_pages()) return copy_out(bytes);
  Pages pages = chunks.take_pages();
  if (spare_) chunks.put_pages(std::move(spare_));
  if (chunks.at_end()) pages.trim(bytes.data() + bytes.size());
  return hand_out(std::move(pages), bytes);
}

void ChunkStream::advance() {
  Chunks::Impl& chunks = chunks_->impl();
  busy_ = true;
  try {
    const WithoutGil without;
    while (!chunks.wait_for(50ms)) without.check_signals();
    chunks.advance(chunk_);
  } catch (nb::python_error&) {
    busy_ = false;
    give_up();
    throw;
  } catch (...) {
    busy_ = false;
    throw;
  }
  busy_ = false;
}

void ChunkStream::seek(std::uint64_t chunk) {
  busy_ = true;
  try {
    const WithoutGil without;
    chunks_->seek(chunk);
  } catch (...) {
    busy_ = false;
    throw;
  }
  busy_ = false;
}

// What is being read cannot be broken off at once; ending it can be left to a thread.
void ChunkStream::give_up() {
  try {
    const SignalsBlocked blocked;
    GivenUp::here().add(
        std::async(std::launch::async, [chunks = std::move(*chunks_)]() mutable {}));
  } catch (const std::system_error&) {  // there are no threads to be had: it has ended here
  }
  close();
}

ChunkStream::Array ChunkStream::hand_out(Pages pages, std::span<const std::byte> bytes) {
  auto lent = std::make_unique<Lent>(Lent{shared_from_this(), std::move(pages)});
  const nb::capsule owner(lent.release(), [](void* pointer) noexcept {
    const std::unique_ptr<Lent> back(static_cast<Lent*>(pointer));
    back->from->give_back(std::move(back->pages));
  });
  return {const_cast<std::byte*>(bytes.data()), {bytes.size()}, owner};  // they lie in `pages`
}

// Out of a mapped file.
ChunkStream::Array ChunkStream::copy_out(std::span<const std::byte> bytes) {
  Pages to = std::move(spare_);
  if (chunks_->impl().at_end() || !to) {
    to = Pages();  // before there are others
    to = Pages(bytes.size(), "a chunk's rows");
  }
  {
    const WithoutGil without;
    in_pieces(without, bytes.size(), kCopyPiece, [&](std::uint64_t done, std::uint64_t now) {
      std::memcpy(to.data() + done, bytes.data() + done, now);
    });
  }
  const std::span<const std::byte> copy(to.data(), bytes.size());
  return hand_out(std::move(to), copy);
}

void ChunkStream::give_back(Pages pages) {
  if (!chunks_ || !chunks_->impl().owned_here()) return;
  Chunks::Impl& chunks = chunks_->impl();
  if (!busy_ && chunks.wants_pages()) {
    chunks.put_pages(std::move(pages));
  } else if ((busy_ || chunks.in_place()) && !spare_) {
    spare_ = std::move(pages);
  }
}

void ChunkStream::close() {
  chunks_.reset();
  spare_ = Pages();
  held_.release();
}

}  // namespace evenkeel::python
