// labels: reads
// Rows in several places of a file: every engine returns what plain pread returns.
#include <algorithm>
#include <random>

#include "array/internal.h"
#include "array/reference.h"
#include "array/row_extents.h"
#include "evenkeel/loader.h"
#include "format/places.h"
#include "format/test_files.h"

namespace evenkeel {
namespace {

class Stretches : public FileTest {
 protected:
  Stretches() {
    std::mt19937 random(1);
    std::string bytes(300'000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    files_ = {write("a", bytes), write("b", bytes.substr(1000))};
  }

  // Places in any order and with any alignment; the last file is used twice.
  Layout layout(std::uint64_t columns, bool in_order) const {
    const std::uint64_t row = 4 * columns;
    std::vector<RowPlace> places;
    std::uint64_t rows = 0, at = 13;
    for (std::uint64_t i = 0; i < 40; ++i) {
      const std::uint64_t count = i % 5 == 0 ? 1 : 3 * i % 17 + 1;
      places.push_back({i < 25 ? 0u : 1u, at, count});
      rows += count;
      at = i == 24 ? 7 : at + count * row + i % 3 * 5;
    }
    if (!in_order) std::swap(places[3], places[20]);
    return layout_of_places("test", files_, places, DType::parse("float32"), i_am_big_,
                            {rows, columns});
  }

  std::vector<std::string> files_;
  bool i_am_big_ = false;
};

std::vector<std::byte> gathered_rows(const Array& array, const std::vector<std::uint64_t>& rows) {
  std::vector<std::byte> out(rows.size() * array.row_bytes());
  array.gather(std::span(rows), std::span<std::byte>(out));
  return out;
}

TEST_F(Stretches, EveryEngineReadsThem) {
  for (const bool in_order : {true, false}) {
    const Layout where = layout(70, in_order);
    EXPECT_FALSE(where.stretches.empty());
    EXPECT_EQ(stored_in_order(where), in_order);
    std::vector<std::uint64_t> rows;
    for (std::uint64_t i = 0; i < where.rows; ++i) rows.push_back(i * 7919 % where.rows);
    const auto expected = reference_rows(where, rows);
    std::vector<std::uint64_t> in_turn(where.rows);
    for (std::uint64_t i = 0; i < where.rows; ++i) in_turn[i] = i;
    const auto all = reference_rows(where, in_turn);
    for (const char* engine : {"auto", "map", "remap", "advise", "read", "direct", "fill"}) {
      const Array array =
          Internals::make(where, {.budget = Budget(2_MiB), .engine = parse_engine(engine)});
      EXPECT_EQ(gathered_rows(array, rows), expected) << engine;
      std::vector<std::byte> scanned;
      for (const Chunk& chunk : array.chunks(7)) {
        scanned.insert(scanned.end(), chunk.bytes().begin(), chunk.bytes().end());
      }
      EXPECT_EQ(scanned, all) << engine;
    }
  }
}

// The cache finds rows by their offset, so rows that share bytes are not cached.
TEST_F(Stretches, OverlapsAreNotInOrder) {
  const auto in_order = [&](std::vector<RowPlace> places) {
    const Layout where =
        layout_of_places("test", files_, places, DType::parse("float32"), false, {6, 100});
    EXPECT_FALSE(where.stretches.empty());
    return stored_in_order(where);
  };
  EXPECT_TRUE(in_order({{0, 0, 3}, {0, 1204, 3}}));
  EXPECT_TRUE(in_order({{0, 5000, 2}, {0, 9000, 1}, {1, 0, 3}}));
  EXPECT_FALSE(in_order({{0, 0, 3}, {0, 1196, 3}}));
  EXPECT_FALSE(in_order({{0, 0, 3}, {0, 0, 3}}));
  const std::vector<RowPlace> places = {{0, 0, 300}, {0, 604, 300}};
  const Layout where =
      layout_of_places("test", files_, places, DType::parse("float32"), false, {600, 100});
  const Array array =
      Internals::make(where, {.budget = Budget(8_MiB), .engine = EngineKind::kDirect});
  std::vector<std::uint64_t> rows;
  for (std::uint64_t i = 0; i < 600; ++i) rows.push_back(i * 7 % 600);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(gathered_rows(array, rows), reference_rows(where, rows));
  }
  EXPECT_THROW(Internals::make(where, {.budget = Budget(8_MiB), .cache = 1_MiB}), Error);
}

TEST_F(Stretches, FlattenedAndSwapped) {
  i_am_big_ = true;
  const Layout where = layout(6, true), flat = where.flattened();
  const Array array = Internals::make(flat, {.budget = Budget(2_MiB)});
  std::vector<std::uint64_t> items;
  for (std::uint64_t i = 0; i < flat.rows; i += 3) items.push_back(i);
  EXPECT_EQ(gathered_rows(array, items), reference_rows(flat, items));
}

TEST_F(Stretches, NeighboursAreOne) {
  const std::vector<RowPlace> places = {{0, 8, 2}, {0, 24, 3}, {0, 48, 1}};
  const Layout where =
      layout_of_places("test", files_, places, DType::parse("float64"), false, {6});
  EXPECT_TRUE(where.stretches.empty());
  ASSERT_EQ(where.segments.size(), 1u);
  EXPECT_EQ(where.segments[0].data_offset, 8u);
}

TEST_F(Stretches, PlacesAreChecked) {
  const auto refusal = [&](std::vector<RowPlace> places, std::vector<std::uint64_t> shape) {
    try {
      layout_of_places("test", files_, places, DType::parse("float64"), false, shape);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal({{0, 0, 2}}, {2, 5}), "accepted");
  EXPECT_NE(refusal({{0, 299'990, 2}}, {2}).find("the file has 300,000"), std::string::npos);
  EXPECT_NE(refusal({{0, UINT64_MAX - 3, 2}}, {2}).find("the file has"), std::string::npos);
  EXPECT_NE(refusal({{0, 0, UINT64_MAX / 2}}, {2}).find("the file has"), std::string::npos);
  EXPECT_NE(refusal({{2, 0, 1}}, {1}).find("file 2 of 2"), std::string::npos);
  EXPECT_NE(refusal({{0, 0, 3}}, {2}).find("hold 3 rows"), std::string::npos);
  EXPECT_NE(refusal({{0, 0, 1}}, {1, 0}).find("no rows to read"), std::string::npos);
  EXPECT_NE(refusal({}, {2}).find("hold 0 rows"), std::string::npos);
}

}  // namespace
}  // namespace evenkeel
