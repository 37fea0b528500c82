// Reading chunk after chunk, ahead of the one who uses them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "array/impl.h"
#include "array/read_ahead.h"
#include "base/memory.h"

namespace evenkeel {

struct Chunks::Impl final : BatchMaker {
  Impl(std::shared_ptr<Array::Impl> array, std::uint64_t rows_per_chunk, const Order& order);

  std::uint64_t size() const { return chunks_; }
  int buffers() const { return static_cast<int>(slots_.size()); }
  void seek(std::uint64_t chunk);
  bool advance(Chunk& chunk);
  // Lets go of the chunk at hand, and waits until `advance` would not, at most so long. False: not
  // yet.
  bool wait_for(std::chrono::nanoseconds most);

  // Chunks can be handed out without a copy: `take_pages` gives away the pages in which the chunk
  // at hand lies, and its slot waits for others of the same size. A slot that still has none when
  // the next chunk is asked for gets new ones, which nobody has paid for: whoever keeps a chunk has
  // them on his own account. The chunk's row numbers are good until pages are put into its slot.
  // For chunks that lie in pages, not in a mapped file.
  bool in_pages() const { return holding_; }
  bool in_place() const { return in_place_; }
  Pages take_pages();
  bool wants_pages() const { return !without_pages_.empty(); }
  void put_pages(Pages pages);
  bool at_end() const { return next_chunk_ == chunks_; }
  bool owned_here() const;  // by this process: not made before a fork

  Job& prepare(std::size_t number_of_slot, std::uint64_t chunk) override;

 private:
  struct Slot {
    PageBuffer memory;
    Reservation list_share;
    std::vector<std::uint64_t> rows;  // of this chunk, in order; the first alone when they follow
    Job job;
  };

  void require_owned() const;
  void let_go();
  void make_slots();
  void add_slot();
  void start_reading();
  std::uint64_t overhang() const;
  std::uint64_t listed() const { return in_order_ ? 1 : rows_per_chunk_; }
  std::uint64_t slot_bytes() const;
  std::uint64_t plan_bytes() const;
  std::uint64_t plan_limit() const;
  std::uint64_t plan_and_slot_bytes() const;
  [[noreturn]] void throw_too_large(const Error& error) const;

  std::uint64_t rows_in(std::uint64_t chunk) const;
  void show(const Slot& slot, Chunk& chunk) const;
  bool show_in_place(Chunk& chunk);

  std::shared_ptr<Array::Impl> array_;
  std::shared_ptr<Engine> engine_;
  const Sequence sequence_;
  const std::uint64_t rows_per_chunk_, chunks_;
  const bool in_order_;    // rows follow one another, so no list of them is needed
  bool in_place_ = false;  // chunks are shown where the file is mapped
  Reservation plan_share_, second_plan_share_;
  std::vector<Slot> slots_;

  std::uint64_t next_chunk_ = 0;              // the next that the user gets
  bool holding_ = false;                      // the user has chunk next_chunk_ - 1 in a slot
  std::vector<std::uint64_t> without_pages_;  // chunks whose slots gave theirs away
  const pid_t owner_;
  std::optional<ReadAhead> ahead_;  // last: its threads use all of the above
};

}  // namespace evenkeel
