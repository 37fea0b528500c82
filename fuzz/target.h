// A fuzz target takes arbitrary bytes and ends the process if an invariant does not hold.
//
//   FUZZ_TARGET(npy) { read(input.rest()); }
//
// Each target is a file of the same name. Under libFuzzer (preset fuzz) each is its own program;
// otherwise all are in one program that replays files, see replay.cc.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "evenkeel/error.h"
#include "fuzz/input.h"

namespace evenkeel::fuzz {

using Target = void (*)(Input input);
bool add_target(const char* name, Target target);  // in replay.cc

[[noreturn]] inline void broken(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
  std::abort();
}

// Whether the call threw Error. Any other exception ends the process.
template <class Call>
bool refused(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.what()[0] == '\0') std::abort();
    return true;
  }
  return false;
}

}  // namespace evenkeel::fuzz

#define MUST(condition) \
  ((condition) ? void() : ::evenkeel::fuzz::broken(#condition, __FILE__, __LINE__))

#ifdef EVENKEEL_LIBFUZZER
#define FUZZ_TARGET(name)                                                             \
  static void fuzz_##name(::evenkeel::fuzz::Input input);                             \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    fuzz_##name({data, size});                                                        \
    return 0;                                                                         \
  }                                                                                   \
  static void fuzz_##name([[maybe_unused]] ::evenkeel::fuzz::Input input)
#else
#define FUZZ_TARGET(name)                                 \
  static void fuzz_##name(::evenkeel::fuzz::Input input); \
  [[maybe_unused]] static const bool added_##name =       \
      ::evenkeel::fuzz::add_target(#name, fuzz_##name);   \
  static void fuzz_##name([[maybe_unused]] ::evenkeel::fuzz::Input input)
#endif
