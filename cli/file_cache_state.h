// Brings files out of the page cache, or into it, before something is measured.
#pragma once

#include <string>
#include <vector>

namespace evenkeel::cli {

// Notes on stderr what stays cached all the same.
void make_cold(const std::vector<std::string>& paths);

// Reads them through once, if they fit the memory available; notes on stderr if not.
void make_warm(const std::vector<std::string>& paths);

}  // namespace evenkeel::cli
