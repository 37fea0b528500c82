// The one thing that the library says: that a program runs without it, and why.
#pragma once

namespace evenkeel::preload {

// "evenkeel guard: WHY (error 13); this program runs unguarded" on stderr, once in a process. With
// error 0 nothing is said of it.
void say_unguarded(const char* why, long error);

}  // namespace evenkeel::preload
