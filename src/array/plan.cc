#include "array/plan.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace evenkeel {

void copy_piece(const Piece& piece, Scatter scatter, std::uint64_t begin, std::uint64_t end,
                const std::byte* data) {
  const std::uint64_t skipped = begin - piece.offset;
  const std::uint64_t length = end - begin;
  if (scatter.unit == 0) {
    std::memcpy(piece.out + skipped, data, length);
    return;
  }
  // A request may begin and end inside an element.
  const std::uint64_t unit = scatter.unit;
  std::uint64_t element = skipped / unit, within = skipped % unit;
  for (std::uint64_t done = 0; done < length;) {
    const std::uint64_t count = std::min(unit - within, length - done);
    std::memcpy(piece.out + element * scatter.stride + within, data + done, count);
    done += count;
    ++element;
    within = 0;
  }
}

void Plan::clear(Scatter scatter) {
  scatter_ = scatter;
  pieces_.clear();
  runs_.clear();
  next_run_ = 0;
  next_offset_ = 0;
}

void Plan::build(const EngineLimits& limits, bool roomy) {
  limits_ = limits;
  roomy_ = roomy && scatter_.unit == 0;
  const auto before = [](const Piece& a, const Piece& b) {
    if (a.file != b.file) return a.file < b.file;
    return a.offset != b.offset ? a.offset < b.offset : a.length < b.length;
  };
  if (!std::ranges::is_sorted(pieces_, before)) std::ranges::sort(pieces_, before);

  ends_rise_ = true;
  for (std::uint32_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    if (i > 0 && pieces_[i - 1].file == piece.file && pieces_[i - 1].end() > piece.end()) {
      ends_rise_ = false;
    }
    const std::uint64_t begin = round_down(piece.offset, limits.alignment);
    const std::uint64_t end = round_up(piece.end(), limits.alignment);
    if (!runs_.empty()) {
      Run& last = runs_.back();
      // Pieces that are read in place each have their own run, except those that share a block.
      const bool near = begin < last.end || begin - last.end <= (roomy_ ? 0 : limits.merge_gap);
      if (last.file == piece.file && near) {
        last.end = std::max(last.end, end);
        last.last_piece = i + 1;
        last.gapless = last.gapless && continues(pieces_[i - 1], piece);
        continue;
      }
    }
    runs_.push_back({piece.file, i, i + 1, true, begin, end});
  }
}

bool Plan::next(Extent& extent, std::uint64_t tag_base) {
  if (next_run_ == runs_.size()) return false;
  const Run& run = runs_[next_run_];
  if (next_offset_ < run.begin) next_offset_ = run.begin;
  extent.file = run.file;
  extent.offset = next_offset_;
  extent.length = std::min(run.end - next_offset_, limits_.max_request);
  if (const std::uint64_t block = limits_.block; block > 0) {
    extent.length = std::min(extent.length, block - next_offset_ % block);
  }
  extent.tag = tag_base + next_run_;
  const bool alone = run.last_piece - run.first_piece == 1;
  const Piece& piece = pieces_[run.first_piece];
  extent.into = roomy_ && alone ? piece.out + extent.offset - piece.offset : nullptr;
  next_offset_ += extent.length;
  if (next_offset_ == run.end) {
    ++next_run_;
    next_offset_ = 0;
  }
  return true;
}

std::optional<Target> Plan::target(const Extent& extent, std::uint64_t run_number) const {
  const Run& run = runs_[run_number];
  if (scatter_.unit != 0 || (!run.gapless && !ends_rise_)) return std::nullopt;
  const std::uint64_t extent_end = extent.offset + extent.length;
  const auto last = pieces_.begin() + run.last_piece;
  if (run.gapless) {
    const Piece& first = pieces_[run.first_piece];
    const std::uint64_t begin = std::max(first.offset, extent.offset);
    const std::uint64_t end = std::min(last[-1].end(), extent_end);
    if (begin >= end) return std::nullopt;
    return Target{begin, end - begin, first.out + (begin - first.offset)};
  }
  const auto piece = first_in(run, extent.offset);
  // An extent that several pieces share has no single target.
  if (piece == last || (piece + 1 != last && piece[1].offset < extent_end)) return std::nullopt;
  const std::uint64_t begin = std::max(piece->offset, extent.offset);
  const std::uint64_t end = std::min(piece->end(), extent_end);
  if (begin >= end) return std::nullopt;
  return Target{begin, end - begin, piece->out + (begin - piece->offset)};
}

// The first piece of a run that may end after `offset`.
std::vector<Piece>::const_iterator Plan::first_in(const Run& run, std::uint64_t offset) const {
  const auto first = pieces_.begin() + run.first_piece, last = pieces_.begin() + run.last_piece;
  if (!ends_rise_) return first;
  return std::partition_point(first, last, [&](const Piece& p) { return p.end() <= offset; });
}

void Plan::deliver(const Extent& extent, std::uint64_t run_number, const std::byte* data) const {
  if (data == extent.into || data == nullptr) return;
  const Run& run = runs_[run_number];
  const std::uint64_t extent_end = extent.offset + extent.length;
  const auto last = pieces_.begin() + run.last_piece;
  for (auto piece = first_in(run, extent.offset); piece != last && piece->offset < extent_end;
       ++piece) {
    const std::uint64_t begin = std::max(piece->offset, extent.offset);
    const std::uint64_t end = std::min(piece->end(), extent_end);
    const std::byte* const from = data + (begin - extent.offset);
    const bool there = scatter_.unit == 0 && from == piece->out + (begin - piece->offset);
    if (begin < end && !there) copy_piece(*piece, scatter_, begin, end, from);
  }
}

std::uint64_t Plan::request_bytes() const {
  std::uint64_t bytes = 0;
  for (const Run& run : runs_) bytes += run.end - run.begin;
  return bytes;
}

}  // namespace evenkeel
