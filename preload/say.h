// The only message of the library: why a program runs unguarded.
#pragma once

namespace evenkeel::preload {

// Prints "evenkeel guard: WHY (error 13); this program runs unguarded" to stderr, once per process.
// Error 0 is left out.
void say_unguarded(const char* why, long error);

}  // namespace evenkeel::preload
