// Training batches of one rank contain the tokens that explain() names, as read by the pread
// reference, also after a seek and after loading a state.
#include "array/reference.h"
#include "evenkeel/tokens.h"
#include "format/token_layout.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"
#include "tests/temp_folder.h"

namespace evenkeel::fuzz {
namespace {

std::int64_t token(const std::vector<std::byte>& stored, std::uint64_t i) {
  return std::to_integer<std::int64_t>(stored[2 * i]) |
         std::to_integer<std::int64_t>(stored[2 * i + 1]) << 8;
}

void check_batch(const TokenLoader& loader, const Batch& batch,
                 const std::vector<std::byte>& stored) {
  const auto origins = loader.explain(batch.step());
  const auto x = batch.x<std::int64_t>(), y = batch.y<std::int64_t>();
  MUST(origins.size() == x.size());
  for (std::size_t row = 0; row < x.size(); ++row) {
    for (std::size_t i = 0; i < x.columns(); ++i) {
      MUST(x[row][i] == token(stored, origins[row].start + i));
      MUST(y[row][i] == token(stored, origins[row].start + i + 1));
    }
  }
}

LoaderOptions any_options(Input& input) {
  LoaderOptions options;
  options.batch_size = input.upto(6);
  options.block_size = input.upto(40);
  options.order = static_cast<CropOrder>(input.upto(2));
  options.seed = input.any_size();
  options.world = input.upto(4);
  options.rank = input.upto(4);
  options.prefetch = static_cast<std::uint32_t>(input.upto(3));
  options.buffers.keep = static_cast<std::uint32_t>(input.upto(2));
  options.workers.stride = input.upto(3);
  options.workers.phase = input.upto(2);
  return options;
}

FUZZ_TARGET(batches) {
  static const MemoryFile file;
  const std::string bytes = random_bytes(2 * (1 + input.upto(3000)), input.upto(255));
  static constexpr EngineKind kEngines[] = {EngineKind::kAuto, EngineKind::kRead,
                                            EngineKind::kDirect, EngineKind::kAdvise};
  const EngineKind engine = kEngines[input.upto(3)];
  const LoaderOptions options = any_options(input);
  const std::uint64_t to = input.any_size() >> 8;
  // dtype is given because random bytes may begin with the magic of another format.
  const std::string& path = file.hold(bytes);
  const Layout layout = read_layout({path}, {.dtype = DType::of<std::uint16_t>(), .offset = 0});
  std::vector<std::uint64_t> every(layout.rows);
  for (std::size_t i = 0; i < every.size(); ++i) every[i] = i;
  const auto stored = reference_rows(layout, every);
  refused([&] {
    const Tokens tokens = Tokens::open(
        path, {.budget = 2_MiB, .engine = engine, .dtype = DType::of<std::uint16_t>()});
    TokenLoader loader(tokens, options);
    for (int i = 0; i < 3; ++i) check_batch(loader, *loader.next(), stored);
    loader.seek(to);
    MUST(loader.step() >= to && loader.step() - to < options.workers.stride);
    const LoaderState state = LoaderState::parse(loader.state().text());
    const Batch& there = *loader.next();
    check_batch(loader, there, stored);
    const std::vector<std::byte> x(there.x_bytes().begin(), there.x_bytes().end());
    TokenLoader other(tokens, options);
    other.load(state);
    MUST(std::ranges::equal(other.next()->x_bytes(), x));
  });
}

}  // namespace
}  // namespace evenkeel::fuzz
