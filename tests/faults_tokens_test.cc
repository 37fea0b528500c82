// Every fault at every call: opening each format, and a token loader that reads ahead.
#include <gtest/gtest.h>

#include <optional>

#include "evenkeel/tokens.h"
#include "format/token_test_files.h"
#include "tests/fault_sweep.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kFaultTokens = 300'000;  // of each of two shards

class TokenFaults : public testing::Test {
 protected:
  TokenFaults() : folder_(disk_folder().value_or(std::filesystem::temp_directory_path())) {}

  std::vector<std::string> shards() const {
    return {folder_.write_through("a.bin", counting<std::uint16_t>(0, kFaultTokens)),
            folder_.write_through("b.bin", counting<std::uint16_t>(kFaultTokens, kFaultTokens))};
  }

  // The next batches are exactly those of the order.
  static void take(TokenLoader& loader, int batches) {
    for (int i = 0; i < batches; ++i) {
      const Batch* batch = loader.next();
      ASSERT_NE(batch, nullptr);
      const auto origins = loader.explain(batch->step());
      const auto x = batch->x<std::int64_t>(), y = batch->y<std::int64_t>();
      for (std::size_t row = 0; row < origins.size(); ++row) {
        for (std::size_t j = 0; j < x.columns(); ++j) {
          const auto token = origins[row].start + j;
          ASSERT_EQ(x[row][j], static_cast<std::int64_t>(token % 65536)) << batch->step();
          ASSERT_EQ(y[row][j], static_cast<std::int64_t>((token + 1) % 65536)) << batch->step();
        }
      }
    }
  }

  void sweep_loader(const std::string& name, EngineKind engine, std::uint64_t budget_bytes,
                    bool rings, std::uint32_t keep = 0) const {
    const std::vector<std::string> paths = shards();
    FaultSweep sweep(name);
    sweep.run(
        [&](FaultCase& fault) {
          const Budget budget(budget_bytes);
          std::optional<TokenLoader> loader;
          fault.attempt([&] {
            const Tokens tokens =
                Tokens::open(paths, {.budget = budget, .engine = engine, .dtype = kU16});
            loader.emplace(tokens, LoaderOptions{.batch_size = 2,
                                                 .block_size = 48,
                                                 .order = CropOrder::kCovering,
                                                 .prefetch = 2,
                                                 .buffers = {.keep = keep}});
          });
          if (loader) {
            fault.attempt([&] { take(*loader, 8); });
            fault.attempt([&] {
              loader->seek(1000);
              take(*loader, 2);
            });
            fault.insist([&] {
              loader->seek(3);
              take(*loader, 8);
            });
            loader.reset();
          }
          EXPECT_EQ(budget.in_use(), 0u);
        },
        {.rings = rings, .whole_blocks = !rings});
  }

  const TempFolder folder_;
};

TEST_F(TokenFaults, LoaderByDirect) {
  sweep_loader("loader, direct", EngineKind::kDirect, 2_MiB, true);
}
TEST_F(TokenFaults, LoaderByThreads) {
  sweep_loader("loader, threads", EngineKind::kDirect, 2_MiB, false, 2);
}
TEST_F(TokenFaults, LoaderByAuto) {
  sweep_loader("loader, auto", EngineKind::kAuto, 1200_KiB, true);
}
TEST_F(TokenFaults, LoaderByMap) {
  sweep_loader("loader, auto that fits", EngineKind::kAuto, 8_MiB, true);
}

TEST_F(TokenFaults, FormatsAtOpen) {
  const std::string npy = folder_.write(
      "x.npy", npy_file(npy_header("'<u2'", "(500,)"), 0) + counting<std::uint16_t>(0, 500));
  folder_.write("raw/a.bin", counting<std::uint16_t>(0, 600));
  folder_.write("raw/b.bin", counting<std::uint16_t>(600, 400));
  folder_.write("llmc/a.bin", llmc_shard(0, 700));
  folder_.write("mega/m.bin", counting<std::uint32_t>(0, 1000));
  folder_.write("mega/m.idx", MegatronIndex::of({300, 300, 400}, 4, 4).bytes());
  folder_.write("trove/t.ds", counting<std::uint16_t>(0, 900));
  folder_.write("trove/t.ds.index", le<std::uint64_t>(400) + le<std::uint64_t>(900));

  struct Expected {
    std::string path;
    std::uint64_t tokens;
    DType dtype;
  };
  const std::vector<Expected> all{{npy, 500, kU16},
                                  {folder_.path("raw/*.bin"), 1000, kU16},
                                  {folder_.path("llmc/a.bin"), 700, kU16},
                                  {folder_.path("mega/m.bin"), 1000, kI32},
                                  {folder_.path("mega/m"), 1000, kI32},
                                  {folder_.path("mega/*"), 1000, kI32},
                                  {folder_.path("trove/t.ds"), 900, kU16}};
  FaultSweep sweep("formats");
  sweep.run(
      [&](FaultCase& fault) {
        const Budget budget(2_MiB);
        const auto check = [&](const Expected& one) {
          const Tokens tokens =
              Tokens::open(one.path, {.budget = budget, .engine = EngineKind::kRead});
          ASSERT_EQ(tokens.size(), one.tokens) << one.path;
          ASSERT_EQ(tokens.dtype(), one.dtype) << one.path;
        };
        for (const Expected& one : all) fault.attempt([&] { check(one); });
        fault.insist([&] {
          for (const Expected& one : all) check(one);
        });
        EXPECT_EQ(budget.in_use(), 0u);
      },
      {.lasting_put_off = false});
}

}  // namespace
}  // namespace evenkeel
