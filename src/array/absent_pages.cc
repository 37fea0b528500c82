#include "array/absent_pages.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "array/row_extents.h"
#include "evenkeel/bytes.h"

namespace evenkeel {
namespace {

// A part of a piece, from byte `begin` of the file to `end`.
struct PiecePart {
  Piece piece;
  std::uint64_t begin = 0, end = 0;
};

// The pieces of `count` rows from each start, one after the other, in parts of at most `longest`.
class PieceWalk {
 public:
  PieceWalk(const Layout& layout, std::span<const std::uint64_t> starts, std::uint64_t count,
            std::byte* out, std::uint64_t longest)
      : layout_(layout), starts_(starts), count_(count), out_(out), longest_(longest) {}

  bool next(PiecePart& part) {
    if (done_to_ == piece_.end()) {
      if (start_ == starts_.size()) return false;
      std::uint64_t taken;
      std::byte* const row_out = out_ + (start_ * count_ + row_) * layout_.row_bytes;
      piece_ = piece_of(layout_, column_, starts_[start_] + row_, count_ - row_, row_out, taken);
      done_to_ = piece_.offset;
      row_ += taken;
      if (row_ == count_) {
        row_ = 0;
        if (++column_ == columns_of(layout_)) {
          column_ = 0;
          ++start_;
        }
      }
    }
    part = {piece_, done_to_, std::min(piece_.end(), done_to_ + longest_)};
    done_to_ = part.end;
    return true;
  }

 private:
  const Layout& layout_;
  const std::span<const std::uint64_t> starts_;
  const std::uint64_t count_;
  std::byte* const out_;
  const std::uint64_t longest_;
  std::size_t start_ = 0;
  std::uint64_t column_ = 0, row_ = 0;
  Piece piece_;
  std::uint64_t done_to_ = 0;  // offset up to which piece_ was returned
};

// Copies pieces from mapped files in groups: while one group is copied, the next is read.
class AbsentPagesCopy {
 public:
  AbsentPagesCopy(Engine& engine, const Layout& layout)
      : engine_(engine), scatter_(scatter_of(layout)), bases_(layout.segments.size(), nullptr) {}

  void copy(PieceWalk walk) {
    Group now, next;
    request(walk, now);
    while (!now.parts.empty()) {
      request(walk, next);
      engine_.await(now.pending);
      look_at_files(now);
      for (const PiecePart& part : now.parts) {
        copy_piece(part.piece, scatter_, part.begin, part.end,
                   bases_[part.piece.file] + part.begin);
      }
      std::swap(now, next);
    }
    for (std::uint32_t file = 0; file < bases_.size(); ++file) {
      if (bases_[file]) engine_.require_unchanged(file);
    }
  }

 private:
  static constexpr std::uint64_t kMostBytes = 4_MiB;
  struct Group {
    std::vector<PiecePart> parts;
    std::vector<FileRange> ranges, pending;
  };

  // Turns a truncated file into an error instead of SIGBUS, unless it is truncated while this group
  // is copied.
  void look_at_files(const Group& group) {
    std::optional<std::uint32_t> last;
    for (const PiecePart& part : group.parts) {
      if (last != part.piece.file) engine_.require_unchanged(part.piece.file);
      last = part.piece.file;
    }
  }

  void request(PieceWalk& walk, Group& group) {
    group.parts.clear();
    group.ranges.clear();
    PiecePart part;
    for (std::uint64_t bytes = 0; group.parts.size() < most_parts_ && bytes < kMostBytes;
         bytes += part.end - part.begin) {
      if (!walk.next(part)) break;
      const std::uint32_t file = part.piece.file;
      if (!bases_[file]) bases_[file] = engine_.mapped(file);
      group.parts.push_back(part);
      group.ranges.push_back({file, part.begin, part.end - part.begin});
    }
    engine_.request(group.ranges, group.pending);
  }

  Engine& engine_;
  const std::size_t most_parts_ = engine_.ranges_together();
  const Scatter scatter_;
  std::vector<const std::byte*> bases_;
};

}  // namespace

void copy_absent(Engine& engine, const Layout& layout, std::span<const std::uint64_t> starts,
                 std::uint64_t count, std::byte* out) {
  if (count == 0) return;
  AbsentPagesCopy(engine, layout).copy(PieceWalk(layout, starts, count, out, 1_MiB));
  if (layout.swapped) {
    swap_bytes(out, starts.size() * count * layout.row_bytes, layout.dtype.swap_unit());
  }
}

}  // namespace evenkeel
