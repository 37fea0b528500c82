// Turns ranges of bytes into requests: sorted, merged where a gap is cheaper to read than a second
// request, aligned, and split if they are too long. Copies what was read back to the caller's
// order.
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

// Copies bytes begin..end-1 of the file, which are at `data`, to their place in the piece.
void copy_piece(const Piece& piece, Scatter scatter, std::uint64_t begin, std::uint64_t end,
                const std::byte* data);

// Pieces may come in any order, overlap and repeat. A plan is filled, built and drained, and can
// then be filled again without new allocations.
class Plan {
 public:
  // Allocates memory for `pieces` pieces.
  void reserve(std::size_t pieces) {
    pieces_.reserve(pieces);
    runs_.reserve(pieces);
  }
  void clear(Scatter scatter);
  void add(const Piece& piece) { pieces_.push_back(piece); }
  // Makes a piece that continues the last one, in the file and in memory, a part of it, unless that
  // would be longer than `most`. Otherwise adds it.
  void add_or_extend(const Piece& piece, std::uint64_t most) {
    if (!pieces_.empty() && scatter_.unit == 0 && continues(pieces_.back(), piece) &&
        pieces_.back().length + piece.length <= most) {
      pieces_.back().length += piece.length;
    } else {
      pieces_.push_back(piece);
    }
  }
  std::size_t size() const { return pieces_.size(); }

  // `roomy`: there is room for alignment before and after each piece's `out`, and `out` has the
  // same misalignment as the offset. Requests may then be read in place.
  void build(const EngineLimits& limits, bool roomy);

  // The next request, or false at the end. Its tag is `tag_base` plus a number below runs().
  bool next(Extent& extent, std::uint64_t tag_base);
  // Where the wanted bytes of a request go, if they belong to one piece, or to several that follow
  // one another in the file and in memory.
  std::optional<Target> target(const Extent& extent, std::uint64_t run) const;
  // Copies the bytes of a request to their places. Does not touch bytes that are there already.
  void deliver(const Extent& extent, std::uint64_t run, const std::byte* data) const;

  // Calls `use` for each piece that lies entirely in a request.
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
  // Bytes of all requests, aligned and merged.
  std::uint64_t request_bytes() const;

  // The most memory that a plan of `pieces` pieces takes.
  static std::uint64_t memory(std::size_t pieces) { return pieces * (sizeof(Piece) + sizeof(Run)); }

 private:
  // A contiguous range of a file, and the pieces in it. `gapless`: each piece continues the last
  // one, in the file and in memory.
  struct Run {
    std::uint32_t file;
    std::uint32_t first_piece, last_piece;  // half open
    bool gapless = true;
    std::uint64_t begin, end;
  };
  static bool continues(const Piece& last, const Piece& piece) {
    return last.file == piece.file && last.end() == piece.offset &&
           last.out + last.length == piece.out;
  }
  std::vector<Piece>::const_iterator first_in(const Run& run, std::uint64_t offset) const;

  Scatter scatter_;
  EngineLimits limits_;
  bool roomy_ = false;
  bool ends_rise_ = true;  // ends increase with starts, so binary search works
  std::vector<Piece> pieces_;
  std::vector<Run> runs_;
  std::size_t next_run_ = 0;
  std::uint64_t next_offset_ = 0;
};

}  // namespace evenkeel
