// Orders: a permutation and its inverse, filling a range equals indexing, ranks share an epoch.
#include "evenkeel/order.h"

#include <vector>

#include "fuzz/target.h"

namespace evenkeel::fuzz {
namespace {

void check_permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch, std::uint64_t at) {
  const Permutation permutation(n, seed, epoch);
  const std::uint64_t value = permutation(at);
  MUST(value < n && permutation.inverse(value) == at);
  MUST(permutation(permutation.inverse(at)) == at);
  MUST(refused([&] { (void)permutation(n); }) && refused([&] { (void)permutation.inverse(n); }));
  MUST(uniform_draw(seed, epoch, at >> 1, n) < n);
}

void check_sequence(const Order& order, std::uint64_t rows, std::uint64_t first,
                    std::size_t count) {
  const Sequence sequence(order, rows);
  std::vector<std::uint64_t> filled(count);
  const bool inside = first <= sequence.size() && count <= sequence.size() - first;
  const bool drawn = order.kind == OrderKind::kRandom && rows >> 63 != 0;  // beyond the last draw
  const bool was_refused = refused([&] { sequence.fill(first, filled); });
  MUST(was_refused == !inside || drawn);
  if (was_refused) return;
  for (std::size_t i = 0; i < count; ++i) {
    MUST(filled[i] < rows);
    MUST(sequence[first + i] == filled[i]);
    if (order.kind != OrderKind::kRandom) MUST(sequence.find(filled[i]) == first + i);
    // The same row as in the global order, at this rank's position.
    const Sequence all(order.for_rank(0, 1), rows);
    MUST(all[(first + i) * order.world + order.rank] == filled[i]);
  }
}

FUZZ_TARGET(order) {
  const std::uint64_t n = input.any_size(), seed = input.any_size(), epoch = input.any_size();
  const std::uint64_t at = input.any_size();
  MUST(refused([&] { Permutation(0, seed, epoch); }));
  if (n > 0) check_permutation(n, seed, epoch, at % n);
  Order order{static_cast<OrderKind>(input.upto(3)), seed, epoch, input.any_size(),
              input.any_size()};
  order.blocks = {input.any_size(), input.any_size(), input.any_size()};
  const std::uint64_t first = input.any_size();
  refused([&] { check_sequence(order, n, first, input.upto(20)); });
  MUST(!order.describe().empty());
}

}  // namespace
}  // namespace evenkeel::fuzz
