// Parsing of a loader's state, which comes from a checkpoint.
#include "evenkeel/tokens.h"
#include "fuzz/target.h"

namespace evenkeel::fuzz {
namespace {

FUZZ_TARGET(state) {
  refused([&] {
    const LoaderState state = LoaderState::parse(std::string(input.rest()));
    MUST(LoaderState::parse(state.text()) == state);
  });
}

}  // namespace
}  // namespace evenkeel::fuzz
