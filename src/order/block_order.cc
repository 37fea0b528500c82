#include "order/block_order.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "base/checked.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "order/philox.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kPhaseDraw = 16;  // after the round keys of the blocks
constexpr std::uint64_t kKeys = 16;       // at least as many as a permutation has rounds
constexpr std::uint64_t kMostPermutations = 1ULL << 58;  // so that each has its own keys

// Requests from 64 KiB on keep a disk as busy as a scan does, and smaller ones nearly so. With
// 2,048 blocks in a window, sorted data trains as well as with an exact shuffle. Below 512, smaller
// blocks are worth their cost. docs/orders.md has the figures.
constexpr std::uint64_t kLargestBlock = 256_KiB, kQuickBlock = 128_KiB, kSmallestBlock = 32_KiB;
constexpr std::uint64_t kManyBlocks = 2048, kFewBlocks = 512;
constexpr std::uint64_t kDefaultStreams = 64;
constexpr std::uint64_t kTurnsOfStep = 8;  // in a mixture

std::uint64_t default_streams(const BlockRequest& request, std::uint64_t world) {
  if (request.sets <= 1) {
    const std::uint64_t part = world / std::gcd(world, kDefaultStreams);
    return checked_mul(part, kDefaultStreams).value_or(world);
  }
  const std::uint64_t most = std::min(kDefaultStreams, request.step_rows / kTurnsOfStep);
  std::uint64_t streams = world;
  while (streams <= most / 2) streams *= 2;
  return streams;
}

std::uint64_t default_block(std::uint64_t window_bytes) {
  if (window_bytes / kManyBlocks >= kQuickBlock) {
    return std::min(window_bytes / kManyBlocks, kLargestBlock);
  }
  return std::clamp(window_bytes / kFewBlocks, kSmallestBlock, kQuickBlock);
}

Error invalid_blocks(const std::string& what, const std::string& hint) {
  return Error(ErrorKind::kInvalid, "order blocks", what).hint(hint);
}

const Order& require_valid(const Order& order) {
  const BlockOptions& blocks = order.blocks;
  if (blocks.block_rows == 0) {
    throw invalid_blocks("a block of 0 rows",
                         "set block_rows to 1 or more; 64 KiB of rows read well");
  }
  if (blocks.window_blocks == 0) {
    throw invalid_blocks("a window of 0 blocks", "set window_blocks to 1 or more");
  }
  if (blocks.streams == 0) {
    throw invalid_blocks("0 streams", "set streams to a multiple of every world size, such as 64");
  }
  if (order.world == 0 || blocks.streams % order.world != 0) {
    const std::string streams = std::to_string(blocks.streams);
    throw invalid_blocks("a world of " + std::to_string(order.world) + " does not divide the " +
                             streams + " streams",
                         "each rank reads whole streams: use a world size that divides " + streams +
                             ", or start again with streams that are a multiple of the world size");
  }
  return order;
}

}  // namespace

std::uint64_t BlockOptions::window_rows() const {
  return checked_mul(block_rows, window_blocks).value_or(UINT64_MAX);
}

BlockOptions choose_blocks(const BlockRequest& request) {
  const std::uint64_t row = std::max<std::uint64_t>(request.row_bytes, 1);
  const std::uint64_t world = std::max<std::uint64_t>(request.world, 1);
  // The bytes of a window, all ranks together.
  const auto product =
      request.window_rows > 0
          ? checked_mul(request.window_rows, row)
          : checked_mul(request.budget / 4 / std::max<std::uint64_t>(request.sets, 1), world);
  const std::uint64_t window_bytes = product.value_or(UINT64_MAX);

  BlockOptions blocks;
  blocks.block_rows = request.block_rows;
  if (blocks.block_rows == 0) {
    blocks.block_rows = std::max<std::uint64_t>(default_block(window_bytes) / row, 1);
  }
  blocks.window_blocks = request.window_rows > 0
                             ? divide_up(request.window_rows, blocks.block_rows)
                             : std::max<std::uint64_t>(window_bytes / row / blocks.block_rows, 1);
  blocks.streams = request.streams > 0 ? request.streams : default_streams(request, world);
  return blocks;
}

// A last window with few blocks would be mixed badly, so all windows have about the same number.
std::uint64_t BlockOrder::even_window_rows(const BlockOptions& blocks, std::uint64_t rows) {
  const std::uint64_t entries = divide_up(rows, blocks.block_rows);
  const std::uint64_t windows = divide_up(entries, blocks.window_blocks);
  if (windows == 0) return blocks.window_rows();
  return BlockOptions{blocks.block_rows, divide_up(entries, windows)}.window_rows();
}

BlockOrder::BlockOrder(const Order& order, std::uint64_t rows)
    : order_(require_valid(order)),
      rows_(rows),
      block_rows_(order.blocks.block_rows),
      window_rows_(even_window_rows(order.blocks, rows)),
      streams_(order.blocks.streams),
      windows_(divide_up(rows, window_rows_)),
      full_blocks_(rows / block_rows_),
      phase_(scale(philox(order.seed, order.epoch, Stream::kBlockKeys, kPhaseDraw), rows)),
      blocks_(std::max<std::uint64_t>(full_blocks_, 1), order.seed, order.epoch,
              Permutation::KeysFrom{static_cast<std::uint64_t>(Stream::kBlockKeys)}) {
  if (streams_ > kMostPermutations - 2 || windows_ > kMostPermutations / (streams_ + 2)) {
    throw invalid_blocks(std::to_string(windows_) + " windows of " + std::to_string(streams_) +
                             " streams are too many: at most 2^58 sections are possible",
                         "use larger windows or fewer streams");
  }
}

std::uint64_t BlockOrder::rows_in(std::uint64_t window) const {
  return std::min(window_rows_, rows_ - window * window_rows_);
}

Permutation BlockOrder::permutation(std::uint64_t window, std::uint64_t number,
                                    std::uint64_t n) const {
  const std::uint64_t keys = (window * (streams_ + 2) + number) * kKeys;
  return {std::max<std::uint64_t>(n, 1), order_.seed, order_.epoch,
          Permutation::KeysFrom{static_cast<std::uint64_t>(Stream::kWindowKeys) + keys}};
}

BlockOrder::Sections::Sections(const BlockOrder& order, std::uint64_t window)
    : order_(order),
      window_(window),
      size_(order.rows_in(window) / order.streams_),
      longer_(order.rows_in(window) % order.streams_),
      order_of_longer_(order.permutation(window, 0, longer_)),
      order_of_others_(order.permutation(window, 1, order.streams_ - longer_)) {}

std::uint64_t BlockOrder::Sections::begin(std::uint64_t section) const {
  if (section < longer_) return order_of_longer_(section) * (size_ + 1);
  return (longer_ + order_of_others_(section - longer_)) * size_ + longer_;
}

std::uint64_t BlockOrder::Sections::section_of(std::uint64_t x) const {
  const std::uint64_t in_longer = longer_ * (size_ + 1);
  if (x < in_longer) return order_of_longer_.inverse(x / (size_ + 1));
  return longer_ + order_of_others_.inverse((x - in_longer) / size_);
}

Permutation BlockOrder::Sections::shuffle(std::uint64_t section) const {
  return order_.permutation(window_, 2 + section, length(section));
}

std::uint64_t BlockOrder::Sections::begin_in_part(std::uint64_t section,
                                                  std::uint64_t first) const {
  const std::uint64_t world = order_.order_.world;
  if (world == 1) return begin(section);  // the whole window is read in the order of the list
  const std::uint64_t before = (section - first) / world;
  const std::uint64_t longer = longer_ > first ? (longer_ - first - 1) / world + 1 : 0;
  return before * size_ + std::min(before, longer);
}

// Section e of a window belongs to the rank of the global positions that take rows from it: those
// that are e modulo the number of streams, counted from the first position of the window.
std::uint64_t BlockOrder::first_section(std::uint64_t window) const {
  const std::uint64_t world = order_.world;
  return (order_.rank + world - window * window_rows_ % world) % world;
}

RowRun BlockOrder::run_at(std::uint64_t window, std::uint64_t x, std::uint64_t most) const {
  const std::uint64_t in_list = window * window_rows_ + x;
  const std::uint64_t entry = in_list / block_rows_, within = in_list % block_rows_;
  const std::uint64_t block = entry < full_blocks_ ? blocks_(entry) : entry;
  // Blocks are counted from row `phase_` on and wrap around at the end of the file.
  const std::uint64_t counted = block * block_rows_ + within, before_end = rows_ - phase_;
  const bool around = counted >= before_end;
  const std::uint64_t left = around ? rows_ - counted : before_end - counted;
  return {around ? counted - before_end : counted + phase_,
          std::min({most, block_rows_ - within, left})};
}

// Calls use(window, place, value) for this rank's positions from global position `first` on.
// `place` is where(sections, section) plus the place of the position's row in its section, and
// `value` is the entry of `values` for it. The world size divides the number of streams, so
// positions that take rows from the same section are a fixed distance apart.
template <class Where, class Use>
void BlockOrder::visit(std::uint64_t first, std::span<std::uint64_t> values, const Where& where,
                       const Use& use) const {
  std::array<std::uint64_t, 256> shuffled;
  const std::uint64_t world = order_.world, distance = streams_ / world;
  std::uint64_t global = first;
  while (!values.empty()) {
    const std::uint64_t window = global / window_rows_, from = global - window * window_rows_;
    const std::uint64_t count =
        std::min<std::uint64_t>(values.size(), divide_up(rows_in(window) - from, world));
    const Sections sections(*this, window);
    for (std::uint64_t i = 0; i < std::min(count, distance); ++i) {
      const std::uint64_t in_window = from + i * world, section = in_window % streams_;
      const Permutation shuffle = sections.shuffle(section);
      const std::uint64_t begin = where(sections, section);
      std::uint64_t turn = in_window / streams_;
      for (std::uint64_t at = i; at < count;) {
        const std::uint64_t now =
            std::min<std::uint64_t>(shuffled.size(), (count - at - 1) / distance + 1);
        shuffle.fill(turn, 1, std::span(shuffled).first(now));
        for (std::uint64_t k = 0; k < now; ++k, at += distance) {
          use(window, begin + shuffled[k], values[at]);
        }
        turn += now;
      }
    }
    values = values.subspan(count);
    global += count * world;
  }
}

void BlockOrder::fill(std::uint64_t first, std::span<std::uint64_t> rows) const {
  visit(
      first, rows,
      [](const Sections& sections, std::uint64_t section) { return sections.begin(section); },
      [this](std::uint64_t window, std::uint64_t x, std::uint64_t& row) {
        row = run_at(window, x, 1).start;
      });
}

std::uint64_t BlockOrder::position_of(std::uint64_t row) const {
  const std::uint64_t counted = row >= phase_ ? row - phase_ : row + (rows_ - phase_);
  const std::uint64_t block = counted / block_rows_;
  const std::uint64_t entry = block < full_blocks_ ? blocks_.inverse(block) : block;
  const std::uint64_t in_list = entry * block_rows_ + counted % block_rows_;
  const std::uint64_t window = in_list / window_rows_, x = in_list % window_rows_;
  const Sections sections(*this, window);
  const std::uint64_t section = sections.section_of(x);
  const std::uint64_t turn = sections.shuffle(section).inverse(x - sections.begin(section));
  return window * window_rows_ + turn * streams_ + section;
}

std::uint64_t BlockOrder::first_position(std::uint64_t window) const {
  const std::uint64_t global = window < windows_ ? window * window_rows_ : rows_;
  return global > order_.rank ? (global - order_.rank - 1) / order_.world + 1 : 0;
}

std::uint64_t BlockOrder::window_of(std::uint64_t position) const {
  return (position * order_.world + order_.rank) / window_rows_;
}

std::uint64_t BlockOrder::most_rows() const {
  return divide_up(std::min(window_rows_, rows_), order_.world);
}

// A section that is not a whole number of blocks begins and ends inside a block. So do the file and
// the list.
std::uint64_t BlockOrder::most_runs() const {
  const std::uint64_t rows = most_rows();
  const std::uint64_t sections = order_.world == 1 ? 1 : std::min(streams_ / order_.world, rows);
  return std::min(rows, rows / block_rows_ + 2 * sections + 2);
}

void BlockOrder::runs(std::uint64_t window, std::vector<RowRun>& runs) const {
  runs.clear();
  const auto add = [&](std::uint64_t x, std::uint64_t end) {
    while (x < end) {
      const RowRun run = run_at(window, x, end - x);
      runs.push_back(run);
      x += run.count;
    }
  };
  if (order_.world == 1) return add(0, rows_in(window));
  const Sections sections(*this, window);
  for (std::uint64_t section = first_section(window); section < streams_; section += order_.world) {
    if (sections.length(section) == 0) break;  // later ones are empty, too
    const std::uint64_t begin = sections.begin(section);
    add(begin, begin + sections.length(section));
  }
}

void BlockOrder::fill_places(std::uint64_t first, std::span<std::uint64_t> places) const {
  const std::uint64_t global = first * order_.world + order_.rank;
  const std::uint64_t own = first_section(global / window_rows_);
  visit(
      global, places,
      [own](const Sections& sections, std::uint64_t section) {
        return sections.begin_in_part(section, own);
      },
      [](std::uint64_t, std::uint64_t place, std::uint64_t& value) { value = place; });
}

}  // namespace evenkeel
