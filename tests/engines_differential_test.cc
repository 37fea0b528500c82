// labels: reads
// Every engine and the pread reference, on the same random files and requests.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>

#include "array/reference.h"
#include "array/row_feed.h"
#include "engine/engines.h"
#include "evenkeel/array.h"
#include "tests/counting_file.h"

namespace evenkeel {
namespace {

constexpr EngineKind kEngines[] = {EngineKind::kMap,  EngineKind::kRemap,  EngineKind::kAdvise,
                                   EngineKind::kRead, EngineKind::kDirect, EngineKind::kFill,
                                   EngineKind::kAuto};

class Differential : public testing::TestWithParam<EngineKind> {
 protected:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  std::string raw_file(const std::string& name, std::uint64_t bytes) {
    return folder_.write(name, random_bytes(bytes, random_()));
  }

  std::string npy_file(const std::string& name, const std::string& descr, std::uint32_t item,
                       bool fortran, const std::vector<std::uint64_t>& shape) {
    std::string text = "{'descr': '" + descr +
                       "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': (";
    std::uint64_t bytes = item;
    for (const auto n : shape) {
      text += std::to_string(n) + ",";
      bytes *= n;
    }
    text += "), }";
    while ((text.size() + 11) % 64 != 0) text += ' ';
    text += '\n';
    const std::string magic("\x93NUMPY\x01\0", 8),
        length{static_cast<char>(text.size() & 255), static_cast<char>(text.size() >> 8)};
    return folder_.write(name, magic + length + text + random_bytes(bytes, random_()));
  }

  // Tests are not optimised: a loop over bytes would take a hundred times as long.
  static bool same(const std::byte* got, const std::byte* want, std::size_t bytes) {
    return std::memcmp(got, want, bytes) == 0;
  }

  // Random gathers, crops, reads and chunks, all against the reference.
  void check(const std::vector<std::string>& paths, ArrayOptions options) {
    options.engine = GetParam();
    const Array array = Array::open(paths, options);
    const Layout layout = read_layout(paths, {options.dtype, options.shape, options.offset, false});
    ASSERT_EQ(array.rows(), layout.rows);
    const std::uint64_t n = array.rows();

    std::vector<std::uint64_t> rows(1 + below(200));
    for (auto& row : rows) row = below(n);
    std::vector<std::byte> out(rows.size() * array.row_bytes());
    array.gather(rows, out);
    EXPECT_EQ(out, reference_rows(layout, rows));

    const std::uint64_t each = 1 + below(std::min<std::uint64_t>(n, 20));
    std::vector<std::uint64_t> starts(1 + below(30)), cropped;
    for (auto& start : starts) {
      start = below(n - each + 1);
      for (std::uint64_t i = 0; i < each; ++i) cropped.push_back(start + i);
    }
    out.resize(cropped.size() * array.row_bytes());
    array.crops(starts, each, out);
    EXPECT_EQ(out, reference_rows(layout, cropped));

    std::vector<std::uint64_t> all(n);
    std::iota(all.begin(), all.end(), 0);
    const auto whole = reference_rows(layout, all);
    out.assign(whole.size(), std::byte{0});
    array.read(0, n, out);
    EXPECT_TRUE(same(out.data(), whole.data(), whole.size()));

    for (const Order& order : {sequential(), shuffled(below(100)), random(below(100)),
                               shuffled(3).for_rank(1, 3), sequential().for_rank(0, 2)}) {
      const Sequence sequence(order, n);
      std::uint64_t seen = 0;
      for (const Chunk& chunk :
           array.chunks(1 + below(std::min<std::uint64_t>(n + 3, 300)), order)) {
        ASSERT_EQ(chunk.position(), seen);
        ASSERT_TRUE(follows(chunk, sequence)) << order.describe();
        seen += chunk.size();
        for (std::size_t i = 0; i < chunk.size(); ++i) {
          const std::byte* want = whole.data() + chunk.index(i) * array.row_bytes();
          ASSERT_TRUE(same(chunk.bytes().data() + i * array.row_bytes(), want, array.row_bytes()))
              << "row " << chunk.index(i);
        }
      }
      ASSERT_EQ(seen, sequence.size());
    }
  }

  std::mt19937_64 random_{20240520};
  // On a disk if there is one, because O_DIRECT differs on tmpfs.
  const TempFolder folder_{disk_folder().value_or(std::filesystem::temp_directory_path())};
};

TEST_P(Differential, RawFilesOfAnySize) {
  for (int round = 0; round < 12; ++round) {
    const std::uint32_t item = 1 + static_cast<std::uint32_t>(below(9));
    const auto columns = static_cast<std::int64_t>(1 + below(40));
    const std::uint64_t offset = below(700);
    const std::uint64_t rows = 1 + below(300);
    const auto path = raw_file("raw", offset + rows * item * columns);
    check({path}, {.budget = 2_MiB,
                   .dtype = DType{DTypeKind::kRecord, item},
                   .shape = {-1, columns},
                   .offset = offset});
  }
}

TEST_P(Differential, NpyInBothOrdersAndBothByteOrders) {
  for (const char* descr : {"<f4", ">f4", ">u2", "<c16", ">c8", "|u1"}) {
    for (const bool fortran : {false, true}) {
      const auto item = static_cast<std::uint32_t>(std::atoi(descr + 2));
      const auto path =
          npy_file("a.npy", descr, item, fortran, {1 + below(120), 1 + below(5), 1 + below(4)});
      check({path}, {.budget = 2_MiB});
    }
  }
}

TEST_P(Differential, SeveralFilesAsOne) {
  for (const bool fortran : {false, true}) {
    std::vector<std::string> paths;
    for (int i = 0; i < 5; ++i) {
      paths.push_back(npy_file("part" + std::to_string(i) + ".npy", "<i4", 4, fortran,
                               {i == 2 ? 0 : 1 + below(60), 7}));
    }
    check(paths, {.budget = 2_MiB});
  }
}

TEST_P(Differential, RowsLongerThanARequest) {
  const auto path = raw_file("long", 3 * 700'001);
  check({path}, {.budget = 4_MiB, .dtype = DType{DTypeKind::kRecord, 700'001}});
}

TEST_P(Differential, DataFarLargerThanTheBudget) {
  const auto path = raw_file("large", 9'000'000 + 17);
  check({path},
        {.budget = 2_MiB, .dtype = DType{DTypeKind::kRecord, 3000}, .shape = {3000}, .offset = 17});
}

TEST_P(Differential, MergingOnOrOffMakesNoDifference) {
  const auto path = raw_file("merge", 400'000);
  for (const std::uint64_t gap : {0, 100, 1 << 20}) {
    check({path}, {.budget = 2_MiB, .dtype = DType{DTypeKind::kRecord, 100}, .merge_gap = gap});
  }
}

TEST_P(Differential, MorePiecesThanPlansHoldAtOnce) {
  const auto path = raw_file("pieces", 1'200'000);
  const Array array = Array::open(path, {.budget = 1_MiB,
                                         .engine = GetParam(),
                                         .dtype = DType{DTypeKind::kRecord, 12},
                                         .merge_gap = 0});
  std::vector<std::uint64_t> rows(5000);
  for (auto& row : rows) row = below(array.rows());
  std::vector<std::byte> out(rows.size() * 12);
  array.gather(rows, out);
  const Layout layout = read_layout({path}, {.dtype = DType{DTypeKind::kRecord, 12}});
  EXPECT_EQ(out, reference_rows(layout, rows));
}

INSTANTIATE_TEST_SUITE_P(Engines, Differential, testing::ValuesIn(kEngines),
                         [](const auto& tested) { return std::string(engine_name(tested.param)); });

}  // namespace
}  // namespace evenkeel
