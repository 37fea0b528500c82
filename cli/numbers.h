// Words of a command line that are numbers with a meaning.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

namespace evenkeel::cli {

// "10ms", "0.5s", "250us". Throws Error (kInvalid).
std::chrono::nanoseconds parse_interval(const std::string& text);
// "30", "0.5": more than 0. Throws Error (kInvalid).
double parse_seconds(const std::string& text);
// A number that a process can have. Throws Error (kInvalid).
pid_t parse_pid(const std::string& text);
// "1MiB/min", "64KiB/s", "1GiB/h" as bytes a minute. Throws Error (kInvalid).
double parse_slope(const std::string& text);

}  // namespace evenkeel::cli
