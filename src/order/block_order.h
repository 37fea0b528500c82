// The order `blocks`, as docs/orders.md specifies it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/order.h"

namespace evenkeel {

// Consecutive rows of the file.
struct RowRun {
  std::uint64_t start = 0, count = 0;
  friend bool operator==(const RowRun&, const RowRun&) = default;
};

// The order is based on a list of blocks: the full blocks in shuffled order, then the rows that are
// left over. A window is a part of that list. The rows of a window, in the order of the list, are
// cut into one section for each stream. The sections are in shuffled order, and the rows of each
// section are shuffled. Consecutive global positions take one row from each section, round robin.
// Immutable, so thread-safe.
//
// A rank has some sections of each window. Its part of a window is these sections one after the
// other. `runs` returns the rows of the file in that part, and `fill_places` returns where in the
// part the row of a position is.
class BlockOrder {
 public:
  // Throws Error (kInvalid) for invalid numbers, and if order.world does not divide the streams.
  BlockOrder(const Order& order, std::uint64_t rows);

  // The rows at global positions first, first + world, first + 2 * world, ...
  void fill(std::uint64_t first, std::span<std::uint64_t> rows) const;
  // The inverse: the global position of a row.
  std::uint64_t position_of(std::uint64_t row) const;

  std::uint64_t windows() const { return windows_; }
  // This rank's positions in a window: from first_position(w) to first_position(w + 1).
  std::uint64_t first_position(std::uint64_t window) const;
  std::uint64_t window_of(std::uint64_t position) const;  // of this rank's position
  // The most rows that this rank has in a window, and the most runs.
  std::uint64_t most_rows() const;
  std::uint64_t most_runs() const;
  // This rank's part of a window, as runs of rows of the file.
  void runs(std::uint64_t window, std::vector<RowRun>& runs) const;
  // Where in that part the rows of this rank's positions first, first + 1, ... are. All of them
  // must be in one window.
  void fill_places(std::uint64_t first, std::span<std::uint64_t> places) const;

 private:
  // How a window is cut. Positions are counted from the first position of the window. Those that
  // are e modulo the number of streams take their rows from section e.
  class Sections {
   public:
    Sections(const BlockOrder& order, std::uint64_t window);
    std::uint64_t length(std::uint64_t section) const { return size_ + (section < longer_); }
    // The number of rows of the window before this section.
    std::uint64_t begin(std::uint64_t section) const;
    // The section that contains row x of the window.
    std::uint64_t section_of(std::uint64_t x) const;
    // Shuffles the rows of a section.
    Permutation shuffle(std::uint64_t section) const;
    // The number of rows in the rank's sections before this one. `section` must belong to the rank,
    // and `first` is the rank's first section.
    std::uint64_t begin_in_part(std::uint64_t section, std::uint64_t first) const;

   private:
    const BlockOrder& order_;
    std::uint64_t window_, size_, longer_;  // the first `longer_` sections have size_ + 1 rows
    Permutation order_of_longer_, order_of_others_;
  };

  static std::uint64_t even_window_rows(const BlockOptions& blocks, std::uint64_t rows);
  std::uint64_t rows_in(std::uint64_t window) const;
  // Permutation number `number` of a window: 0 and 1 order its sections, 2 + e shuffles section e.
  Permutation permutation(std::uint64_t window, std::uint64_t number, std::uint64_t n) const;
  std::uint64_t first_section(std::uint64_t window) const;  // of this rank
  // The run from row x of a window on, as long as it is contiguous in the file, but at most `most`
  // rows.
  RowRun run_at(std::uint64_t window, std::uint64_t x, std::uint64_t most) const;
  template <class Where, class Use>
  void visit(std::uint64_t first, std::span<std::uint64_t> values, const Where& where,
             const Use& use) const;

  Order order_;
  std::uint64_t rows_, block_rows_, window_rows_, streams_;
  std::uint64_t windows_, full_blocks_, phase_;
  Permutation blocks_;
};

}  // namespace evenkeel
