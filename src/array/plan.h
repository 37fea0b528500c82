// Wanted bytes become requests: sorted, merged where a gap is cheaper to read than a second
// request, aligned, split where they are too long; and back again into the caller's order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/engine.h"

namespace evenkeel {

// Bytes of a file and where they go. With a stride, elements of `unit` bytes go `stride` apart.
struct Piece {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::byte* out = nullptr;
  std::uint64_t end() const { return offset + length; }
};

// How the bytes of a piece are laid out: together, or element by element.
struct Scatter {
  std::uint64_t unit = 0;    // 0: together
  std::uint64_t stride = 0;  // from one element to the next
};

// Lays bytes begin..end-1 of the file, which are at `data`, where the piece wants them.
void copy_piece(const Piece& piece, Scatter scatter, std::uint64_t begin, std::uint64_t end,
                const std::byte* data);

// Pieces in any order; overlaps and repeats are fine. Filled, built, drained; then filled again
// without allocating anew.
class Plan {
 public:
  // Room for so many pieces, once and for all.
  void reserve(std::size_t pieces) {
    pieces_.reserve(pieces);
    runs_.reserve(pieces);
  }
  void clear(Scatter scatter);
  void add(const Piece& piece) { pieces_.push_back(piece); }
  std::size_t size() const { return pieces_.size(); }

  // `roomy`: before and behind each piece's `out` there is room for the alignment's overhang, and
  // `out` is as far from alignment as the offset is: requests may be read in place.
  void build(const EngineLimits& limits, bool roomy);

  // The next request, or false at the end. Its tag is `tag_base` plus a number below runs().
  bool next(Extent& extent, std::uint64_t tag_base);
  // The place of a request's wanted bytes, if they are in one piece.
  std::optional<Target> target(const Extent& extent, std::uint64_t run) const;
  // Lays the bytes of a request where they belong.
  void deliver(const Extent& extent, std::uint64_t run, const std::byte* data) const;

  // Calls `use` with each piece that lies wholly in a request.
  template <class Use>
  void for_each_whole_piece(const Extent& extent, std::uint64_t run_number, const Use& use) const {
    const Run& run = runs_[run_number];
    const std::uint64_t end = extent.offset + extent.length;
    for (std::uint32_t i = run.first_piece; i < run.last_piece; ++i) {
      if (pieces_[i].offset >= end) break;
      if (pieces_[i].offset >= extent.offset && pieces_[i].end() <= end) use(pieces_[i]);
    }
  }

  std::size_t runs() const { return runs_.size(); }
  // What will be read: bytes of all requests, aligned and merged.
  std::uint64_t request_bytes() const;

  // Memory that a plan of so many pieces takes at most.
  static std::uint64_t memory(std::size_t pieces) { return pieces * (sizeof(Piece) + sizeof(Run)); }

 private:
  // A stretch of a file read without a break, and the pieces in it.
  struct Run {
    std::uint32_t file;
    std::uint32_t first_piece, last_piece;  // half open
    std::uint64_t begin, end;
  };
  Scatter scatter_;
  EngineLimits limits_;
  bool roomy_ = false;
  bool ends_rise_ = true;  // with the starts, so that a piece can be searched for
  std::vector<Piece> pieces_;
  std::vector<Run> runs_;
  std::size_t next_run_ = 0;
  std::uint64_t next_offset_ = 0;
};

}  // namespace evenkeel
