// SHA-256 and HMAC (FIPS 180-4, RFC 2104) for request signatures. Only short texts are hashed with
// it, not data.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace evenkeel {

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(std::string_view text);
Digest hmac_sha256(std::string_view key, std::string_view text);
std::string hex_of(const Digest& digest);
std::string_view bytes_of(const Digest& digest);

}  // namespace evenkeel
