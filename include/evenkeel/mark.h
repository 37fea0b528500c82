// Words from a program to a profiler that watches it.
#pragma once

#include <string_view>

namespace evenkeel {

// Names this moment ("epoch 2", "validation") for a profiler that watches; does nothing, and costs
// next to nothing, when none does. Text beyond 200 bytes is cut off, control characters become
// blanks. Never throws, never waits; safe from several threads, and in a child of fork.
//
// A profiler that watches says so in the environment: EVENKEEL_MARKS is the path of a regular file,
// to which each mark adds one line, "<CLOCK_MONOTONIC nanoseconds> <pid> <text>". It is asked for
// once in each process. Besides budgets, the library reads the environment here alone.
void mark(std::string_view text) noexcept;

}  // namespace evenkeel
