// Millions of batches in one process: loaders, arrays and ranges of chunks that come and go, by
// every engine, every batch checked. Ends with 1 when a batch is wrong, or when descriptors or
// threads are left behind. Memory is watched from outside: `evenkeel profile --fail-slope`
// (scripts/test_long). usage: long_run BATCHES [ROUNDS]
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "evenkeel/mark.h"
#include "evenkeel/tokens.h"
#include "tests/counting_file.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kTokens = 3'000'000, kRow = 64;  // 6 MB of tokens

std::size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator entries(folder), none;
  return static_cast<std::size_t>(std::distance(entries, none));
}

// Descriptors and threads, once those that are on their way out have gone.
struct Held {
  std::size_t descriptors = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
  static Held at_most(const Held& before) {
    Held now;
    for (int i = 0; i < 500 && now.threads > before.threads; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      now = Held();
    }
    return now;
  }
};

void require(bool right, const char* what) {
  if (!right) throw std::runtime_error(what);
}

class LongRun {
 public:
  LongRun() : folder_(disk_folder().value_or(std::filesystem::temp_directory_path())) {
    std::string bytes;
    for (std::uint64_t i = 0; i < kTokens; ++i) {
      bytes += static_cast<char>(i & 255);
      bytes += static_cast<char>(i >> 8 & 255);
    }
    tokens_path_ = folder_.write_through("tokens.bin", bytes);
    rows_path_ = counting_file(folder_, "rows", 500'000);
  }

  // So many batches by one engine, then as much again of other calls; all is closed at the end.
  void by(EngineKind engine, std::uint64_t batches) {
    const Tokens tokens = Tokens::open(
        tokens_path_, {.budget = 4_MiB, .engine = engine, .dtype = DType::of<std::uint16_t>()});
    TokenLoader loader(
        tokens,
        {.batch_size = 2, .block_size = kRow, .order = CropOrder::kCovering, .seed = ++seed_});
    for (std::uint64_t i = 0; i < batches; ++i) {
      if (i % 1000 == 999) loader.seek(i * 7);
      check(*loader.next());
    }
    done_ += batches;
    Array array = Array::open(rows_path_, counted(8, 1_MiB, engine));
    for (std::uint64_t i = 0; i < 20; ++i) {
      const std::vector<std::uint64_t> rows{i * 101 % 62'000, i * 7'919 % 62'000};
      require(gathered(array, rows) == rows_of_counting(rows, 8), "wrong rows");
    }
    int chunks = 5;
    for (const Chunk& chunk : array.chunks(500, shuffled(seed_))) {
      require(counts_on(chunk), "wrong chunk");
      if (--chunks == 0) break;
    }
  }
  std::uint64_t done() const { return done_; }

 private:
  static void check(const Batch& batch) {
    const auto x = batch.x<std::int64_t>(), y = batch.y<std::int64_t>();
    for (std::size_t row = 0; row < x.size(); ++row) {
      for (std::size_t j = 0; j < kRow; ++j) {
        require(x[row][j] == ((x[row][0] + static_cast<std::int64_t>(j)) & 0xffff), "wrong x");
        require(y[row][j] == ((x[row][j] + 1) & 0xffff), "wrong y");
      }
    }
  }

  const TempFolder folder_;
  std::string tokens_path_, rows_path_;
  std::uint64_t seed_ = 0, done_ = 0;
};

int long_run(std::uint64_t batches, std::uint64_t rounds) {
  LongRun run;
  const std::uint64_t each = std::max<std::uint64_t>(1, batches / rounds / std::size(kAllEngines));
  std::optional<Held> first;
  for (std::uint64_t round = 0; run.done() < batches; ++round) {
    for (const EngineKind engine : kAllEngines) run.by(engine, each);
    if (round % 10 == 0) mark("round " + std::to_string(round));
    if (!first) first = Held::at_most({1'000, 1});
    const Held now = Held::at_most(*first);
    if (now.descriptors > first->descriptors || now.threads > first->threads) {
      std::fprintf(stderr, "round %lu: %zu descriptors, %zu threads; after the first: %zu, %zu\n",
                   static_cast<unsigned long>(round), now.descriptors, now.threads,
                   first->descriptors, first->threads);
      return 1;
    }
  }
  std::printf(
      "%lu batches, each of them right; %zu descriptors and %zu threads, as after the first "
      "round\n",
      static_cast<unsigned long>(run.done()), first->descriptors, first->threads);
  return 0;
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: long_run BATCHES [ROUNDS]\n");
    return 2;
  }
  try {
    return evenkeel::long_run(std::strtoull(argv[1], nullptr, 10),
                              argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 100);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "long_run: %s\n", error.what());
    return 1;
  }
}
