// Common parts of the tests of the loader of rows.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "evenkeel/loader.h"
#include "tests/temp_folder.h"

namespace evenkeel {

// Number j of row r is base + 1000 * r + j, so that every wrong number is noticed.
inline std::string numbered(std::int32_t base, std::uint64_t rows, std::uint64_t columns) {
  std::string bytes(rows * columns * 4, '\0');
  for (std::uint64_t i = 0; i < rows * columns; ++i) {
    const auto value = base + static_cast<std::int32_t>(i / columns * 1000 + i % columns);
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
  return bytes;
}

inline std::string labels_of(std::uint64_t rows) {
  std::string bytes(rows * 8, '\0');
  for (std::uint64_t i = 0; i < rows; ++i) {
    const auto label = static_cast<std::int64_t>(i * 7);
    std::memcpy(bytes.data() + 8 * i, &label, 8);
  }
  return bytes;
}

inline constexpr BlockOptions kSmallBlocks = {8, 16, 12};

class RowLoaderTest : public testing::Test {
 protected:
  Array features(std::uint64_t rows, EngineKind engine = EngineKind::kDirect,
                 const std::string& name = "x.bin", std::int32_t base = 0) {
    return Array::open(folder_.write(name, numbered(base, rows, 5)),
                       {.budget = budget_,
                        .engine = engine,
                        .dtype = DType::of<std::int32_t>(),
                        .shape = {-1, 5}});
  }
  Array labels(std::uint64_t rows, EngineKind engine = EngineKind::kDirect) {
    return Array::open(folder_.write("y.bin", labels_of(rows)),
                       {.budget = budget_, .engine = engine, .dtype = DType::of<std::int64_t>()});
  }

  // Expects that every field of the next batch has the rows that explain() returns.
  static void expect_as_explained(Loader& loader, std::size_t rows) {
    const auto origins = loader.explain(loader.step());
    const RowBatch& batch = *loader.next();
    ASSERT_EQ(batch.rows(), rows);
    ASSERT_EQ(origins.size(), rows);
    const auto x = batch.as<std::int32_t>(0);
    const auto y = batch.as<std::int64_t>(1);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::int32_t j = 0; j < 5; ++j) {
        ASSERT_EQ(x[i][j], static_cast<std::int32_t>(origins[i].row) * 1000 + j);
      }
      ASSERT_EQ(y[i][0], static_cast<std::int64_t>(origins[i].row) * 7);
    }
  }

  static std::string complaint(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  static void expect_in(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }

  Budget budget_ = 16_MiB;
  TempFolder folder_;
};

}  // namespace evenkeel
