// For tests: files of the uint32 numbers 0, 1, 2, ..., so that a wrong row is recognized.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/array.h"
#include "tests/temp_folder.h"

namespace evenkeel {

using Numbers = std::vector<std::uint32_t>;

inline constexpr EngineKind kAllEngines[] = {
    EngineKind::kMap,    EngineKind::kRemap, EngineKind::kAdvise, EngineKind::kRead,
    EngineKind::kDirect, EngineKind::kFill,  EngineKind::kAuto};

inline Numbers counting(std::uint64_t first, std::uint64_t count) {
  Numbers numbers(count);
  std::uint32_t* at = numbers.data();  // tests are not optimised: no calls in the loop
  for (std::uint64_t i = 0; i < count; ++i) at[i] = static_cast<std::uint32_t>(first + i);
  return numbers;
}

inline std::string counting_file(const TempFolder& folder, std::string_view name,
                                 std::uint64_t count, std::uint64_t first = 0) {
  const Numbers numbers = counting(first, count);
  return folder.write(name,
                      {reinterpret_cast<const char*>(numbers.data()), count * sizeof numbers[0]});
}

// Options that open such a file as rows of `columns` numbers.
inline ArrayOptions counted(std::int64_t columns, const Budget& budget,
                            EngineKind engine = EngineKind::kAuto) {
  return {.budget = budget,
          .engine = engine,
          .dtype = DType::of<std::uint32_t>(),
          .shape = {-1, columns}};
}

// What gather must return.
inline Numbers rows_of_counting(std::span<const std::uint64_t> rows, std::uint64_t columns) {
  Numbers numbers;
  for (const std::uint64_t row : rows) {
    for (std::uint64_t i = 0; i < columns; ++i) {
      numbers.push_back(static_cast<std::uint32_t>(row * columns + i));
    }
  }
  return numbers;
}

inline Numbers gathered(const Array& array, std::span<const std::uint64_t> rows) {
  Numbers out(rows.size() * array.row_bytes() / sizeof(std::uint32_t));
  array.gather(rows, std::span(out));
  return out;
}

// Whether a chunk holds the rows that chunk.index() names.
inline bool counts_on(const Chunk& chunk) {
  const auto rows = chunk.rows<std::uint32_t>();
  const std::size_t columns = rows.columns();
  const std::uint32_t* at = rows.data();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto first = static_cast<std::uint32_t>(chunk.index(i) * columns);
    for (std::uint32_t j = 0; j < columns; ++j, ++at) {
      if (*at != first + j) return false;
    }
  }
  return true;
}

// Whether chunk.index() names the rows at its position of the sequence. Computes all rows at once,
// because a single row of a block order takes as long as a thousand.
inline bool follows(const Chunk& chunk, const Sequence& sequence) {
  std::vector<std::uint64_t> rows(chunk.size());
  sequence.fill(chunk.position(), rows);
  const std::uint64_t* at = rows.data();
  for (std::size_t i = 0; i < chunk.size(); ++i, ++at) {
    if (chunk.index(i) != *at) return false;
  }
  return true;
}

// The error that a call throws. If it throws none: kInvalid, "nothing was thrown".
template <class Call>
Error error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::kInvalid, "test", "nothing was thrown");
}

}  // namespace evenkeel
