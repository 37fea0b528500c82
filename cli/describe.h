// Arrays and numbers in words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/array.h"

namespace evenkeel::cli {

std::string describe_shape(const std::vector<std::uint64_t>& shape);  // "3,000,000 × 162"
std::string describe(const Array& array);  // "3,000,000 × 162 float32, 1.81 GiB, npy"
std::string counted(std::uint64_t count, const std::string& what,
                    const std::string& many = "s");                 // "1 line", "1,234 lines"
std::string describe_rate(double per_second);                       // "1,234", "2.5"
std::string describe_ratio(double ratio);                           // "27", "1.5", "0.14", "0.005"
std::string size_or_unknown(std::optional<std::uint64_t> bytes);    // "64 MiB", "unknown"
std::string describe_files(const std::vector<std::string>& paths);  // "a.npy", "a.npy and 3 more"

}  // namespace evenkeel::cli
