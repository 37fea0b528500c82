// Names moments of a program for the profiler that watches it.
#pragma once

#include <string_view>

#include "evenkeel/compiler.h"

#pragma GCC visibility push(default)

namespace evenkeel {

// Names this moment ("epoch 2", "validation") for the profiler that watches this program. Without a
// profiler it does nothing and costs next to nothing. Text beyond 200 bytes is cut off; control
// characters become blanks. Never throws, never blocks. Safe from several threads, and in a child
// of fork.
//
// The profiler sets EVENKEEL_MARKS in the environment to the path of a regular file. Each mark
// appends one line to it, "<CLOCK_MONOTONIC nanoseconds> <pid> <text>". The variable is read once
// per process.
void mark(std::string_view text) noexcept;

}  // namespace evenkeel

#pragma GCC visibility pop
