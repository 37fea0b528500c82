// Parsing and printing sizes in bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "evenkeel/compiler.h"

#pragma GCC visibility push(default)

namespace evenkeel {

// Parses "64MiB", "1.5 GB", "4096", "8M". KiB MiB GiB TiB are powers of two, KB MB GB TB powers of
// ten, a bare K M G T is a power of two, a bare number is bytes. Throws Error (kInvalid) for
// anything else: negative, empty, not a number, more than 2^63-1, an unknown unit. The message
// lists the units.
std::uint64_t parse_size(std::string_view text);

// "64 MiB", "1.5 GiB", "999 B": at most four significant digits, powers of two.
std::string format_size(std::uint64_t bytes);

// "1,234,567": for messages that show their arithmetic.
std::string with_commas(std::uint64_t number);

inline namespace literals {
constexpr std::uint64_t operator""_KiB(unsigned long long n) { return n << 10; }
constexpr std::uint64_t operator""_MiB(unsigned long long n) { return n << 20; }
constexpr std::uint64_t operator""_GiB(unsigned long long n) { return n << 30; }
}  // namespace literals

}  // namespace evenkeel

namespace ek = evenkeel;

#pragma GCC visibility pop
