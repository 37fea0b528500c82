// Chunks that are read ahead.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "array/impl.h"
#include "array/lending_pool.h"
#include "array/read_ahead.h"
#include "array/window_reader.h"
#include "base/memory.h"

namespace evenkeel {

struct Chunks::Impl final : BatchMaker {
  Impl(std::shared_ptr<Array::Impl> array, std::uint64_t rows_per_chunk, const Order& order);
  ~Impl();

  std::uint64_t size() const { return chunks_; }
  int buffers() const { return static_cast<int>(buffers_.size()); }
  void seek(std::uint64_t chunk);
  bool advance(Chunk& chunk);

  // For the bindings. Returns the next chunk in memory that the caller may keep: the pages into
  // which it was read. When the loan ends, the memory is used again; see LendingPool. `use` is
  // called with the chunk while its row numbers are valid, under a lock: it should copy them and do
  // nothing else. Cannot be mixed with `advance`. For a mapped file the loan is empty: the chunk is
  // valid as long as this object is, and copying it may wait for the disk.
  using Use = std::function<void(const Chunk& chunk)>;
  ReadAhead::Outcome lend(const Use& use, Loan& loan, ReadAhead::Clock::time_point deadline);
  // Memory for a copy of a chunk.
  Loan take_spare() { return pool_->take_spare(); }
  bool in_place() const { return in_place_; }
  bool at_end() const { return next_chunk_ == chunks_; }  // only for chunks in place
  bool owned_here() const;                                // made in this process, not before a fork
  // Stops reading. Callers that wait for a chunk get an error. Returns false if threads are still
  // reading at the deadline; then this object must not be destroyed.
  bool close(std::optional<ReadAhead::Clock::time_point> deadline = {});

  Job& prepare(std::size_t slot, std::uint64_t chunk) override;
  void finish(std::size_t slot, std::uint64_t chunk) override;

 private:
  // The part of a slot of ReadAhead that is not in the pool: row numbers and the job.
  struct Buffer {
    Reservation list_share;
    std::vector<std::uint64_t> rows;  // of this chunk, in order; only the first if in_order_
    Job job;
  };

  void require_owned() const;
  void give_back();
  ReadAhead::Outcome lend_in_place(const Use& use, Loan& loan);
  bool copies_some() const;
  void make_buffers();
  void make_windows();
  void add_buffer();  // reserves only; LendingPool::allocate allocates
  void start_reading();
  std::uint64_t overhang() const;
  std::uint64_t listed() const { return in_order_ ? 1 : rows_per_chunk_; }
  std::uint64_t buffer_bytes() const;
  std::uint64_t plan_bytes() const;
  std::uint64_t plan_limit() const;
  std::uint64_t plan_and_buffer_bytes() const;
  [[noreturn]] void throw_too_large(const Error& error) const;
  [[noreturn]] void throw_no_room_beside_windows(const Error& error);

  std::uint64_t rows_in(std::uint64_t chunk) const;
  Chunk describe(std::uint64_t number) const;
  void show(const Buffer& buffer, Chunk& chunk) const;
  bool show_in_place(Chunk& chunk);

  std::shared_ptr<Array::Impl> array_;
  std::shared_ptr<Engine> engine_;
  const Sequence sequence_;
  const std::uint64_t rows_per_chunk_, chunks_;
  const bool in_order_;    // rows are consecutive, so no list of them is needed
  bool in_place_ = false;  // chunks are views of the mapping, except those that must be copied
  // For the order kBlocks, unless the file is mapped: chunks are copied out of windows.
  std::unique_ptr<WindowReader> windows_;
  std::unique_ptr<Engine> no_engine_;
  Reservation plan_share_, second_plan_share_;
  std::vector<Buffer> buffers_;
  std::shared_ptr<LendingPool> pool_;

  std::uint64_t next_chunk_ = 0;  // the next chunk to hand out
  bool holding_ = false;          // the caller of `advance` has chunk next_chunk_ - 1 in a slot
  const pid_t owner_;
  std::shared_ptr<ReadAhead> ahead_;  // its threads use all of the above: ~Impl closes it
};

}  // namespace evenkeel
