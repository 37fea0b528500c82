// Runs single hot paths, to count their instructions: times are noisy, instruction counts are not.
// tests/instructions_test.py runs this under callgrind, which counts inside the functions named
// hot_*.
//
//   hot_paths NAME FILE    runs one path once; FILE holds at least 2 MiB of tokens
//   hot_paths built        prints what the counts depend on: compiler, and how tokens are widened
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "array/plan.h"
#include "evenkeel/order.h"
#include "evenkeel/tokens.h"
#include "tokens/widen.h"

namespace {

namespace ek = evenkeel;

constexpr std::uint64_t kRows = 10'000, kRowBytes = 648, kBatch = 64, kBlock = 1024;

}  // namespace

// Not inlined and with plain names, so that callgrind finds them.
extern "C" {

// Plans requests for rows in shuffled order, as a gather does for the direct engine.
__attribute__((noinline)) std::uint64_t hot_planning(ek::Plan& plan, std::byte* out,
                                                     const std::vector<std::uint64_t>& rows) {
  plan.clear({});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    plan.add({0, rows[i] * kRowBytes, kRowBytes, out + i * kRowBytes});
  }
  plan.build({.alignment = 512, .max_request = 1 << 17, .merge_gap = 4096}, false);
  ek::Extent extent;
  std::uint64_t requests = 0;
  while (plan.next(extent, 0)) ++requests;
  return requests;
}

__attribute__((noinline)) std::uint64_t hot_permutation(const ek::Sequence& sequence,
                                                        std::vector<std::uint64_t>& rows) {
  std::uint64_t sum = 0;
  for (std::uint64_t at = 0; at < sequence.size(); at += rows.size()) {
    sequence.fill(at, rows);
    sum += rows.front();
  }
  return sum;
}

__attribute__((noinline)) bool hot_widening(const std::vector<std::uint16_t>& tokens,
                                            std::vector<std::int64_t>& x,
                                            std::vector<std::int64_t>& y) {
  return ek::widen_xy(ek::DType::of<std::uint16_t>(),
                      reinterpret_cast<const std::byte*>(tokens.data()), x.size(),
                      ek::DType::of<std::int64_t>(), reinterpret_cast<std::byte*>(x.data()),
                      reinterpret_cast<std::byte*>(y.data()));
}

__attribute__((noinline)) void hot_batches(const ek::Tokens& tokens,
                                           const std::vector<std::uint64_t>& starts,
                                           std::vector<std::int64_t>& x,
                                           std::vector<std::int64_t>& y) {
  for (std::size_t at = 0; at + kBatch <= starts.size(); at += kBatch) {
    tokens.xy<std::int64_t>(std::span(starts).subspan(at, kBatch), kBlock, x, y);
  }
}
}

namespace {

void planning() {
  std::vector<std::uint64_t> rows(kRows);
  ek::Sequence(ek::shuffled(7), 1'000'000).fill(0, rows);
  std::vector<std::byte> out(kRows * kRowBytes);
  ek::Plan plan;
  plan.reserve(kRows);
  if (hot_planning(plan, out.data(), rows) == 0) std::abort();
}

void permutation() {
  std::vector<std::uint64_t> rows(10'000);
  if (hot_permutation(ek::Sequence(ek::shuffled(7), 1'000'000), rows) == 0) std::abort();
}

void widening() {
  std::vector<std::uint16_t> tokens(1'000'001, 3);
  std::vector<std::int64_t> x(1'000'000), y(x.size());
  if (!hot_widening(tokens, x, y) || y.back() != 3) std::abort();
}

// From a mapping: cached tokens are used in place.
void batches(const char* file) {
  const ek::Tokens tokens = ek::Tokens::open(file, {.budget = ek::Budget(std::uint64_t{64} << 20)});
  if (tokens.engine().chosen != ek::EngineKind::kMap) {
    std::fputs("hot_paths: the file is not mapped\n", stderr);
    std::exit(1);
  }
  std::vector<std::uint64_t> starts(20 * kBatch);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    starts[i] = ek::uniform_draw(7, 0, i, tokens.size() - kBlock);
  }
  std::vector<std::int64_t> x(kBatch * kBlock), y(x.size());
  hot_batches(tokens, starts, x, y);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "built") {
#if defined(__clang__)
    const char* compiler = "clang";
#else
    const char* compiler = "gcc";
#endif
    std::printf("{\"compiler\": \"%s %d\", \"widened_by\": \"%s\"}\n", compiler,
#if defined(__clang__)
                __clang_major__,
#else
                __GNUC__,
#endif
                ek::widened_by());
  } else if (what == "planning") {
    planning();
  } else if (what == "permutation") {
    permutation();
  } else if (what == "widening") {
    widening();
  } else if (what == "batches" && argc > 2) {
    batches(argv[2]);
  } else {
    std::fputs("usage: hot_paths planning|permutation|widening|batches|built [FILE]\n", stderr);
    return 2;
  }
}
