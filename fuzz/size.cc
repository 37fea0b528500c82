// Parsing of sizes, budgets and names.
#include "evenkeel/array.h"
#include "evenkeel/budget.h"
#include "evenkeel/dtype.h"
#include "evenkeel/tokens.h"
#include "fuzz/target.h"

namespace evenkeel::fuzz {
namespace {

// A printed size parses back to nearly the same value.
void check_shown(std::uint64_t bytes) {
  const std::string shown = format_size(bytes);
  if (shown.ends_with("PiB") || shown.ends_with("EiB")) return;  // printed, but not parsed
  const std::uint64_t back = parse_size(shown);
  const std::uint64_t off = back > bytes ? back - bytes : bytes - back;
  MUST(off <= bytes / 100);
  MUST(parse_size(std::to_string(bytes)) == bytes);
}

FUZZ_TARGET(size) {
  const std::string_view text = input.rest();
  refused([&] {
    const std::uint64_t bytes = parse_size(text);
    MUST(bytes >> 63 == 0);
    check_shown(bytes);
  });
  refused([&] {
    const Budget budget = Budget::parse(text, 1 + text.size() % 3);
    MUST(!budget.describe().empty());
  });
  refused([&] {
    const DType dtype = DType::parse(text);
    MUST(dtype.size >= 1);
    MUST(DType::parse(dtype.name()) == dtype);
  });
  refused([&] { MUST(engine_name(parse_engine(text)) == text); });
  refused([&] { MUST(crop_order_name(parse_crop_order(text)) == text); });
}

}  // namespace
}  // namespace evenkeel::fuzz
