#include "array/row_extents.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <vector>

namespace evenkeel {
namespace {

// Files with the given numbers of rows, and a header of 10 bytes in the first, 11 in the second,
// ...
Layout layout_of(const std::vector<std::uint64_t>& rows_of_files,
                 const std::vector<std::uint64_t>& row_shape, bool fortran) {
  Layout layout;
  layout.dtype = {DTypeKind::kUint, 4};
  layout.fortran = fortran;
  layout.shape = {0};
  layout.row_bytes = 4;
  for (const auto n : row_shape) {
    layout.shape.push_back(n);
    layout.row_bytes *= n;
  }
  for (const auto rows : rows_of_files) {
    Segment segment;
    segment.data_offset = 10 + layout.segments.size();
    segment.first_row = layout.rows;
    segment.rows = rows;
    layout.rows += rows;
    layout.segments.push_back(segment);
  }
  layout.shape[0] = layout.rows;
  return layout;
}

TEST(Pieces, EveryRowIsFoundInItsFile) {
  const Layout layout = layout_of({3, 1, 5}, {2}, false);
  std::vector<std::uint32_t> files;
  for (std::uint64_t row = 0; row < layout.rows; ++row) files.push_back(segment_of(layout, row));
  EXPECT_EQ(files, (std::vector<std::uint32_t>{0, 0, 0, 1, 2, 2, 2, 2, 2}));
}

TEST(Pieces, APieceEndsWhereItsFileEnds) {
  const Layout layout = layout_of({3, 1, 5}, {2}, false);
  std::byte out[8 * 9];
  std::uint64_t taken = 0;
  const Piece piece = piece_of(layout, 0, 1, 7, out, taken);
  EXPECT_EQ(taken, 2u);
  EXPECT_EQ(piece.file, 0u);
  EXPECT_EQ(piece.offset, 10 + 1 * 8u);
  EXPECT_EQ(piece.length, 2 * 8u);
  EXPECT_EQ(piece.out, out);
}

TEST(Pieces, AFortranPieceIsOneColumnOfItsFile) {
  const Layout layout = layout_of({3, 5}, {2}, true);
  std::byte out[8 * 8];
  std::uint64_t taken = 0;
  const Piece piece = piece_of(layout, 1, 4, 9, out, taken);  // row 1 of the second file
  EXPECT_EQ(taken, 4u);
  EXPECT_EQ(piece.file, 1u);
  EXPECT_EQ(piece.offset, 11 + (1 * 5 + 1) * 4u);
  EXPECT_EQ(piece.length, 4 * 4u);
  EXPECT_EQ(piece.out, out + 4);
}

TEST(Pieces, RowsOfOneElementNeedNoScatter) {
  EXPECT_EQ(scatter_of(layout_of({4}, {3}, false)).unit, 0u);
  EXPECT_EQ(scatter_of(layout_of({4}, {}, true)).unit, 0u);
  EXPECT_EQ(scatter_of(layout_of({4}, {3}, true)).unit, 4u);
  EXPECT_EQ(scatter_of(layout_of({4}, {3}, true)).stride, 12u);
}

// (i, j, k) of the row's axes is stored at i + a*(j + b*k) and lies in memory at (i*b + j)*c + k.
TEST(Pieces, ColumnsAreStoredFirstAxisFastestAndLaidLastAxisFastest) {
  constexpr std::uint64_t kA = 2, kB = 3, kC = 5;
  const Layout layout = layout_of({4}, {kA, kB, kC}, true);
  for (std::uint64_t i = 0; i < kA; ++i) {
    for (std::uint64_t j = 0; j < kB; ++j) {
      for (std::uint64_t k = 0; k < kC; ++k) {
        EXPECT_EQ(column_place(layout, i + kA * (j + kB * k)), 4 * ((i * kB + j) * kC + k));
      }
    }
  }
}

RC_GTEST_PROP(PiecesProperty, PiecesOfAllRowsCoverEveryByteOfDataOnce, ()) {
  const auto sizes = *rc::gen::nonEmpty(
      rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(1, 9)));
  const auto row_shape = *rc::gen::container<std::vector<std::uint64_t>>(
      *rc::gen::inRange<std::size_t>(0, 5), rc::gen::inRange<std::uint64_t>(1, 4));
  const Layout layout = layout_of(sizes, row_shape, *rc::gen::arbitrary<bool>());
  std::vector<std::vector<int>> times(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) times[i].resize(sizes[i] * layout.row_bytes);
  const auto step = *rc::gen::inRange<std::uint64_t>(1, layout.rows + 1);
  for (std::uint64_t column = 0; column < columns_of(layout); ++column) {
    for (std::uint64_t row = 0, taken; row < layout.rows; row += taken) {
      const auto count = std::min(step, layout.rows - row);
      const Piece piece = piece_of(layout, column, row, count, nullptr, taken);
      RC_ASSERT(taken >= 1u);
      RC_ASSERT(taken <= count);
      const std::uint64_t begin = piece.offset - layout.segments[piece.file].data_offset;
      for (std::uint64_t at = 0; at < piece.length; ++at) ++times[piece.file].at(begin + at);
    }
  }
  for (const auto& file : times) {
    for (const int count : file) RC_ASSERT(count == 1);
  }
}

class SwapBytes : public testing::TestWithParam<std::uint32_t> {};

TEST_P(SwapBytes, ReversesEveryUnitAndNothingElse) {
  const std::uint32_t unit = GetParam();
  std::vector<std::uint8_t> bytes(5 * unit + 1), want;
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  for (std::uint32_t word = 0; word < 5; ++word) {
    for (std::uint32_t i = 0; i < unit; ++i) want.push_back(bytes[word * unit + unit - 1 - i]);
  }
  want.push_back(bytes.back());
  swap_bytes(reinterpret_cast<std::byte*>(bytes.data()), 5 * unit, unit);
  EXPECT_EQ(bytes, want);
}

INSTANTIATE_TEST_SUITE_P(Units, SwapBytes, testing::Values(1u, 2u, 4u, 8u));

}  // namespace
}  // namespace evenkeel
