// Measures what `evenkeel batches` does not measure about the token loader. Prints JSON for
// bench/run.
//
//   loader_bench ram FILE SECONDS    the loader on a cached file, and the same loop on the same
//                                    tokens mapped and resident; their checksums must be equal
//   loader_bench seek FILE           time to open, and to seek to the middle of an epoch
//   loader_bench many FILE BATCHES   growth of memory after the first hundred batches
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/fd.h"
#include "evenkeel/meter.h"
#include "evenkeel/tokens.h"
#include "tokens/widen.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kBatch = 64, kBlock = 1024, kSeed = 7;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::int64_t digest(const std::int64_t* y, std::int64_t sum) {
  for (std::uint64_t row = 0; row < kBatch; ++row) sum = sum * 31 + y[(row + 1) * kBlock - 1];
  return sum;
}

struct Speed {
  double crops_per_s;
  std::int64_t checksum;
};

Speed by_loader(const Tokens& tokens, std::uint64_t steps) {
  TokenLoader loader(tokens,
                     {.batch_size = kBatch, .block_size = kBlock, .seed = kSeed, .prefetch = 8});
  std::int64_t sum = 0;
  const double began = now();
  for (std::uint64_t i = 0; i < steps; ++i) {
    sum = digest(loader.next()->y<std::int64_t>().data(), sum);
  }
  return {static_cast<double>(steps * kBatch) / (now() - began), sum};
}

Speed by_memory(const std::byte* tokens, std::uint64_t count, std::uint64_t steps) {
  std::vector<std::int64_t> x(kBatch * kBlock), y(x.size());
  std::int64_t sum = 0;
  const double began = now();
  for (std::uint64_t i = 0; i < steps; ++i) {
    for (std::uint64_t row = 0; row < kBatch; ++row) {
      const std::uint64_t start = uniform_draw(kSeed, 0, i * kBatch + row, count - kBlock);
      widen_xy(DType::of<std::uint16_t>(), tokens + 2 * start, kBlock, DType::of<std::int64_t>(),
               reinterpret_cast<std::byte*>(&x[row * kBlock]),
               reinterpret_cast<std::byte*>(&y[row * kBlock]));
    }
    sum = digest(y.data(), sum);
  }
  return {static_cast<double>(steps * kBatch) / (now() - began), sum};
}

int ram(const std::string& path, double seconds) {
  const Tokens tokens = Tokens::open(path, {.budget = 64_MiB});
  const Fd fd = open_readable(path);
  const std::uint64_t bytes = tokens.size() * 2;
  void* pages = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (pages == MAP_FAILED) throw Error::system("map", errno).in(path);
  const auto* all = static_cast<const std::byte*>(pages);
  std::vector<double> ratios, loader_speed, memory_speed;
  const auto steps = static_cast<std::uint64_t>(seconds * 3000);
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Speed loader = by_loader(tokens, steps), memory = by_memory(all, tokens.size(), steps);
    if (loader.checksum != memory.checksum) {
      std::fprintf(stderr, "loader_bench: the loader's batches differ from the file\n");
      return 1;
    }
    ratios.push_back(loader.crops_per_s / memory.crops_per_s);
    loader_speed.push_back(loader.crops_per_s);
    memory_speed.push_back(memory.crops_per_s);
  }
  std::ranges::sort(ratios);
  std::ranges::sort(loader_speed);
  std::ranges::sort(memory_speed);
  std::printf(
      "{\"ratio\": %.3f, \"lowest\": %.3f, \"highest\": %.3f, \"loader\": %.0f, "
      "\"memory\": %.0f}\n",
      ratios[2], ratios.front(), ratios.back(), loader_speed[2], memory_speed[2]);
  return 0;
}

int seek(const std::string& path) {
  std::vector<double> times;
  std::uint64_t blocks = 0;
  for (int repeat = 0; repeat < 11; ++repeat) {
    const double began = now();
    const Tokens tokens = Tokens::open(path, {.budget = 64_MiB});
    TokenLoader loader(
        tokens,
        {.batch_size = 12, .block_size = kBlock, .order = CropOrder::kShuffled, .prefetch = 2});
    blocks = loader.epoch_samples();
    loader.seek(blocks / 24);
    times.push_back((now() - began) * 1e3);
  }
  std::ranges::sort(times);
  std::printf("{\"ms\": %.3f, \"blocks\": %llu}\n", times[5],
              static_cast<unsigned long long>(blocks));
  return 0;
}

int many(const std::string& path, std::uint64_t batches) {
  const Tokens tokens = Tokens::open(path, {.budget = 16_MiB, .engine = EngineKind::kDirect});
  TokenLoader loader(tokens, {.batch_size = 4, .block_size = 64, .prefetch = 4});
  for (int i = 0; i < 100; ++i) loader.next();
  const ProcessMemory before = process_memory();
  const double began = now();
  for (std::uint64_t i = 0; i < batches; ++i) loader.next();
  const ProcessMemory after = process_memory();
  const auto kib = [](std::uint64_t a, std::uint64_t b) {
    return (static_cast<long long>(a) - static_cast<long long>(b)) / 1024;
  };
  std::printf(
      "{\"anon_growth_kib\": %lld, \"file_growth_kib\": %lld, \"page_tables_growth_kib\": %lld, "
      "\"seconds\": %.1f}\n",
      kib(after.anon, before.anon), kib(after.file, before.file),
      kib(after.page_tables, before.page_tables), now() - began);
  return 0;
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) try {
  const std::string what = argc > 2 ? argv[1] : "";
  if (what == "ram" && argc == 4) return evenkeel::ram(argv[2], std::atof(argv[3]));
  if (what == "seek") return evenkeel::seek(argv[2]);
  if (what == "many" && argc == 4)
    return evenkeel::many(argv[2], std::strtoull(argv[3], nullptr, 10));
  std::fprintf(stderr, "usage: loader_bench ram FILE SECONDS | seek FILE | many FILE BATCHES\n");
  return 2;
} catch (const std::exception& error) {
  std::fprintf(stderr, "loader_bench: %s\n", error.what());
  return 1;
}
