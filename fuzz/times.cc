// Parsing of the arguments of `evenkeel profile`: intervals, slopes, seconds, process IDs.
#include "cli/options.h"
#include "fuzz/target.h"

namespace evenkeel::fuzz {
namespace {

FUZZ_TARGET(times) {
  const std::string text(input.rest());
  refused([&] {
    const auto interval = cli::parse_interval(text);
    MUST(interval >= std::chrono::microseconds(100) && interval <= std::chrono::hours(1));
  });
  refused([&] {
    const double slope = cli::parse_slope(text);
    MUST(slope >= 0 && slope < 1e21);
  });
  refused([&] {
    const double seconds = cli::parse_seconds(text);
    MUST(seconds > 0 && seconds <= 1e8);
  });
  refused([&] { MUST(cli::parse_pid(text) > 0); });
}

}  // namespace
}  // namespace evenkeel::fuzz
