// labels: threads reads
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "loader/row_loader.h"
#include "loader/test_row_loader.h"

namespace evenkeel {
namespace {

class RaggedLoader : public RowLoaderTest {
 protected:
  // Row i has i % 7 values: 100 * i, 100 * i + 1, ... Row 500 has 3,000.
  static std::uint64_t length(std::uint64_t row) { return row == 500 ? 3000 : row % 7; }

  void make(std::uint64_t rows, EngineKind engine) {
    std::vector<std::int32_t> values, indices;
    std::vector<std::int64_t> offsets = {0};
    for (std::uint64_t row = 0; row < rows; ++row) {
      for (std::uint64_t i = 0; i < length(row); ++i) {
        values.push_back(static_cast<std::int32_t>(100 * row + i));
        indices.push_back(static_cast<std::int32_t>(i));
      }
      offsets.push_back(static_cast<std::int64_t>(values.size()));
    }
    const auto open = [&](const char* name, const auto& numbers) {
      using Number = typename std::decay_t<decltype(numbers)>::value_type;
      const auto bytes = std::as_bytes(std::span(numbers));
      return std::make_unique<Array>(Array::open(
          folder_.write(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}),
          {.budget = budget_, .engine = engine, .dtype = DType::of<Number>()}));
    };
    values_ = open("values.bin", values);
    indices_ = open("indices.bin", indices);
    offsets_ = open("offsets.bin", offsets);
  }

  std::unique_ptr<Array> values_, indices_, offsets_;
};

TEST_F(RaggedLoader, RowsOfDifferentLengthsComeWithTheirOffsets) {
  for (const EngineKind engine : {EngineKind::kDirect, EngineKind::kMap, EngineKind::kRead}) {
    make(1003, engine);
    const Array y = labels(1003);
    for (const std::uint32_t prefetch : {0, 3}) {
      for (const OrderKind order : {OrderKind::kShuffled, OrderKind::kBlocks}) {
        RowLoaderOptions options{.batch_size = 50, .order = order, .seed = 2, .prefetch = prefetch};
        if (order == OrderKind::kBlocks) options.blocks = kSmallBlocks;
        Loader loader({LoaderField::ragged(*values_, *offsets_), y}, options);
        std::uint64_t rows = 0;
        for (const RowBatch& batch : loader) {
          ASSERT_EQ(batch.fields(), 3u);
          const auto values = batch.as<std::int32_t>(0).flat();
          const auto offsets = batch.as<std::int64_t>(1).flat();
          ASSERT_EQ(offsets.size(), batch.rows() + 1);
          for (std::size_t i = 0; i < batch.rows(); ++i, ++rows) {
            const auto row = static_cast<std::uint64_t>(batch.as<std::int64_t>(2)[i][0]) / 7;
            ASSERT_EQ(static_cast<std::uint64_t>(offsets[i + 1] - offsets[i]), length(row));
            for (std::uint64_t j = 0; j < length(row); ++j) {
              ASSERT_EQ(values[static_cast<std::size_t>(offsets[i]) + j],
                        static_cast<std::int32_t>(100 * row + j));
            }
          }
          ASSERT_EQ(values.size(), static_cast<std::size_t>(offsets.back()));
        }
        EXPECT_EQ(rows, 1003u);
      }
    }
  }
}

// Rows have about the same length, so that nothing needs more memory than was reserved.
TEST_F(RaggedLoader, ASmallerBudgetLeavesTheBatchesAsTheyAre) {
  make(490, EngineKind::kDirect);
  for (const OrderKind order : {OrderKind::kShuffled, OrderKind::kBlocks}) {
    RowLoaderOptions options{.batch_size = 98, .order = order, .seed = 2, .prefetch = 8};
    options.steps = 20;
    if (order == OrderKind::kBlocks) options.blocks = kSmallBlocks;
    using Ragged = std::pair<std::vector<std::int32_t>, std::vector<std::int64_t>>;
    const auto next = [](Loader& loader) {
      const RowBatch& batch = *loader.next();
      const auto values = batch.as<std::int32_t>(0).flat();
      const auto offsets = batch.as<std::int64_t>(1).flat();
      return Ragged({values.begin(), values.end()}, {offsets.begin(), offsets.end()});
    };
    std::vector<Ragged> expected;
    {
      Loader loader({LoaderField::ragged(*values_, *offsets_)}, options);
      for (int i = 0; i < 20; ++i) expected.push_back(next(loader));
    }
    {
      Loader loader({LoaderField::ragged(*values_, *offsets_)}, options);
      for (std::size_t i = 0; i < 20; ++i) {
        ASSERT_EQ(next(loader), expected[i]) << i;
        if (i != 3 && i != 9) continue;
        const int before = loader.buffers();
        budget_.resize(budget_.in_use() - budget_.cached() - 1);
        EXPECT_LT(loader.buffers(), before);
      }
    }
    budget_.resize(16_MiB);
  }
}

// The caller may keep batches: only the last one counts.
TEST_F(RaggedLoader, BatchesOfLongRowsThatAreKeptLeaveTheBudget) {
  make(1003, EngineKind::kDirect);
  const LoaderField field = LoaderField::ragged(*values_, *offsets_);
  Loader::Impl loader({{{field}, 1}}, {.batch_size = 1, .order = OrderKind::kSequential}, true);
  std::vector<Loader::Impl::Lent> kept(5);
  for (Loader::Impl::Lent& lent : kept) {
    loader.seek(500);
    const auto deadline = ReadAhead::Clock::now() + std::chrono::minutes(1);
    ASSERT_EQ(loader.lend(lent, deadline), ReadAhead::Outcome::kTaken);
  }
  const auto uses = budget_.uses();
  const auto use = std::ranges::find(uses, "a batch of long rows", &BudgetUse::what);
  ASSERT_NE(use, uses.end());
  EXPECT_EQ(use->count, 1u);
  for (const Loader::Impl::Lent& lent : kept) {
    const auto values = lent.batch.as<std::int32_t>(0).flat();
    ASSERT_EQ(values.size(), 3000u);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], static_cast<std::int32_t>(50'000 + i));
    }
  }
}

TEST_F(RaggedLoader, SparseRowsComeAsTheyAreOrDense) {
  make(400, EngineKind::kDirect);
  Loader sparse({LoaderField::csr(*values_, *indices_, *offsets_, 8)}, {.batch_size = 30});
  Loader dense({LoaderField::csr(*values_, *indices_, *offsets_, 8, true)}, {.batch_size = 30});
  for (const RowBatch& batch : sparse) {
    const RowBatch& full = *dense.next();
    const auto origins = dense.explain(full.step());
    const auto indptr = batch.as<std::int64_t>(2).flat();
    ASSERT_EQ(full.as<std::int32_t>().columns(), 8u);
    for (std::size_t i = 0; i < full.rows(); ++i) {
      const std::uint64_t row = origins[i].row;
      ASSERT_EQ(static_cast<std::uint64_t>(indptr[i + 1] - indptr[i]), length(row));
      for (std::uint64_t column = 0; column < 8; ++column) {
        ASSERT_EQ(full.as<std::int32_t>()[i][column],
                  column < length(row) ? static_cast<std::int32_t>(100 * row + column) : 0);
      }
    }
  }
  const auto all = [&](const LoaderField& field) {
    return complaint([&] {
      for (const RowBatch& batch : Loader({field}, {.batch_size = 30})) ASSERT_GT(batch.rows(), 0u);
    });
  };
  expect_in(all(LoaderField::csr(*values_, *indices_, *offsets_, 5)), "in a matrix of 5 columns");
  expect_in(all(LoaderField::csr(*values_, *indices_, *offsets_, std::uint64_t{1} << 62, true)),
            "too large to be dense");
  expect_in(all(LoaderField::csr(*values_, *indices_, *offsets_, 5, true)),
            "an index is 5 in a matrix of 5 columns");
}

// Each rank has its own part of each window, and a loader resumes from a state.
TEST_F(RaggedLoader, BlocksOfRowsAreReadAtOnce) {
  make(60'000, EngineKind::kDirect);
  const LoaderField field = LoaderField::csr(*values_, *indices_, *offsets_, 3000);
  const RowLoaderOptions options{
      .batch_size = 100, .order = OrderKind::kBlocks, .seed = 3, .blocks = {100, 200, 8}};
  std::set<std::uint64_t> seen;
  const auto check = [&](Loader& loader, const RowBatch& batch) {
    const auto values = batch.as<std::int32_t>(0).flat();
    const auto indices = batch.as<std::int32_t>(1).flat();
    const auto indptr = batch.as<std::int64_t>(2).flat();
    const auto origins = loader.explain(batch.step());
    ASSERT_EQ(indptr.size(), batch.rows() + 1);
    for (std::size_t i = 0; i < batch.rows(); ++i) {
      const std::uint64_t row = origins[i].row;
      const auto begin = static_cast<std::size_t>(indptr[i]);
      ASSERT_EQ(static_cast<std::uint64_t>(indptr[i + 1] - indptr[i]), length(row));
      for (std::uint64_t j = 0; j < length(row); ++j) {
        ASSERT_EQ(values[begin + j], static_cast<std::int32_t>(100 * row + j));
        ASSERT_EQ(indices[begin + j], static_cast<std::int32_t>(j));
      }
      EXPECT_TRUE(seen.insert(row).second);
    }
  };
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    RowLoaderOptions mine = options;
    mine.rank = rank;
    mine.world = 2;
    Loader loader({field}, mine);
    const std::uint64_t before = values_->stats().requests;
    for (const RowBatch& batch : loader) check(loader, batch);
    // At most one request for each block of 100 rows, and some for sections that begin inside one.
    EXPECT_LT(values_->stats().requests - before, 500u);
  }
  EXPECT_EQ(seen.size(), 60'000u);

  Loader first({field}, options), resumed({field}, options);
  for (int i = 0; i < 250; ++i) first.next();
  resumed.load(first.state());
  seen.clear();
  for (int i = 0; i < 20; ++i) {
    const RowBatch& batch = *resumed.next();
    check(resumed, batch);
    const auto expected = first.next()->as<std::int32_t>(0).flat();
    ASSERT_TRUE(std::ranges::equal(batch.as<std::int32_t>(0).flat(), expected));
  }
}

TEST_F(RaggedLoader, WindowsThatDoNotFitAreRefused) {
  budget_ = Budget(2_MiB);
  make(60'000, EngineKind::kDirect);
  expect_in(complaint([&] {
              const Loader loader(
                  {LoaderField::ragged(*values_, *offsets_)},
                  {.batch_size = 100, .order = OrderKind::kBlocks, .blocks = {100, 600, 8}});
            }),
            "rows of about 4 values do not fit");
}

TEST_F(RaggedLoader, OffsetsThatDecreaseOrLeaveTheValuesAreRefused) {
  make(400, EngineKind::kDirect);
  const auto offsets = [&](const std::vector<std::int64_t>& numbers) {
    const auto bytes = std::as_bytes(std::span(numbers));
    return Array::open(
        folder_.write("wrong.bin", {reinterpret_cast<const char*>(bytes.data()), bytes.size()}),
        {.budget = budget_, .dtype = DType::of<std::int64_t>()});
  };
  OrderKind order = OrderKind::kShuffled;
  const auto all = [&](const std::vector<std::int64_t>& numbers) {
    const Array wrong = offsets(numbers);
    return complaint([&] {
      Loader loader({LoaderField::ragged(*values_, wrong)},
                    {.batch_size = 2, .order = order, .blocks = {2, 2, 1}});
      while (loader.next()) {
      }
    });
  };
  EXPECT_EQ(all({0, 3, 3, 10}), "accepted");
  expect_in(all({0, 5, 3, 10}), "row 1 is said to be values 5 to 3");
  expect_in(all({0, 5, 100'000, 10}), "row 1 is said to be values 5 to 100000");
  expect_in(all({0, -1, 3, 10}), "-1");
  expect_in(all({0, 5, 100'000}), "offsets go from 0 to 100,000, but there are ");
  expect_in(all({0}), "the array has no rows");
  order = OrderKind::kBlocks;
  EXPECT_EQ(all({0, 3, 3, 10}), "accepted");
  expect_in(all({0, 5, 3, 10}), "row 1 is said to be values 5 to 3");
  expect_in(all({0, 5, 100'000, 10}), "row 1 is said to be values 5 to 100000");
  expect_in(complaint([&] {
              const Loader loader({LoaderField::ragged(*values_, *offsets_), features(399)},
                                  {.batch_size = 2});
            }),
            "there are 400 rows in ");
  expect_in(complaint([&] {
              const Loader loader({LoaderField::csr(*values_, *offsets_, *offsets_, 3)},
                                  {.batch_size = 2});
            }),
            "401 indices and ");
}

}  // namespace
}  // namespace evenkeel
