// For tests: a counting file, read in every way by every engine.
#pragma once

#include <string>
#include <vector>

#include "tests/counting_file.h"

namespace evenkeel {

struct EveryEngine {
  std::vector<std::string> paths;
  std::int64_t columns = 8;
  std::uint64_t budget = 2_MiB;
  std::uint64_t picks = 50, rows_per_chunk = 2'000, chunks = 5;

  // Returns "right", or what was wrong, or the message of the error.
  std::string read(EngineKind engine) const {
    const std::string name(engine_name(engine));
    try {
      const Budget limit(budget);
      const Array array = Array::open(paths, counted(columns, limit, engine));
      std::vector<std::uint64_t> rows;
      for (std::uint64_t i = 0; i < picks; ++i) rows.push_back(i * 7919 * 31 % array.rows());
      const auto width = static_cast<std::uint64_t>(columns);
      if (gathered(array, rows) != rows_of_counting(rows, width)) return name + ": wrong rows";
      for (const Order& order : {sequential(), shuffled(3)}) {
        std::uint64_t left = chunks;
        for (const Chunk& chunk : array.chunks(rows_per_chunk, order)) {
          if (!counts_on(chunk)) return name + ": wrong chunk";
          if (--left == 0) break;
        }
      }
      return "right";
    } catch (const std::exception& error) {
      return name + ": " + error.what();
    }
  }
  std::string read_by_all() const {
    for (const EngineKind engine : kAllEngines) {
      if (std::string said = read(engine); said != "right") return said;
    }
    return "right";
  }
};

}  // namespace evenkeel
