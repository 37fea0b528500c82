// Drops files from the page cache, or reads them into it, before a measurement.
#pragma once

#include <string>
#include <vector>

namespace evenkeel::cli {

// Prints a note to stderr if something stays cached.
void make_cold(const std::vector<std::string>& paths);

// Reads them once if they fit in the available memory; otherwise prints a note to stderr.
void make_warm(const std::vector<std::string>& paths);

}  // namespace evenkeel::cli
