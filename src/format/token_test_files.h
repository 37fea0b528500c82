// Helpers for tests of token files. They write bytes by hand and share no code with the readers.
// Token i has the value i mod 65536, so that a wrong token is noticed.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "format/test_files.h"
#include "format/token_layout.h"

namespace evenkeel {

constexpr DType kU16{DTypeKind::kUint, 2}, kU32{DTypeKind::kUint, 4}, kI32{DTypeKind::kInt, 4};

// A number as it is stored in a file: little-endian.
template <class T>
std::string le(std::type_identity_t<T> value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    bytes += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 255);
  }
  return bytes;
}

template <class T, class Values>
std::string le_all(const Values& values) {
  std::string bytes;
  for (const auto value : values) bytes += le<T>(static_cast<T>(value));
  return bytes;
}

// Tokens first, first+1, ... of the counting stream.
template <class T>
std::string counting(std::uint64_t first, std::uint64_t count) {
  std::string bytes;
  for (std::uint64_t i = first; i < first + count; ++i) bytes += le<T>(static_cast<T>(i % 65536));
  return bytes;
}

inline std::string llmc_file(std::int32_t magic, std::int32_t version, std::int32_t tokens,
                             std::string_view payload) {
  std::string bytes =
      le<std::int32_t>(magic) + le<std::int32_t>(version) + le<std::int32_t>(tokens);
  bytes.resize(1024);
  return bytes.append(payload);
}

template <class T = std::uint16_t>
std::string llmc_shard(std::uint64_t first, std::uint64_t count) {
  const bool wide = sizeof(T) == 4;
  return llmc_file(wide ? 20240801 : 20240520, wide ? 7 : 1, static_cast<std::int32_t>(count),
                   counting<T>(first, count));
}

// The fields of an .idx, for tests that corrupt them one at a time.
struct MegatronIndex {
  std::string magic = {"MMIDIDX\0\0", 9};
  std::uint64_t version = 1;
  int code = 8;
  std::vector<std::int64_t> lengths, pointers, documents;
  std::uint64_t sequences = 0, document_count = 0;
  std::string modes = {};

  // An index of sequences with lengths `lens`, of tokens of `size` bytes. Each is one document.
  static MegatronIndex of(const std::vector<std::int64_t>& lens, int dtype_code = 8,
                          std::int64_t size = 2) {
    MegatronIndex index;
    index.code = dtype_code;
    index.lengths = lens;
    index.documents = {0};
    std::int64_t at = 0;
    for (const std::int64_t length : lens) {
      index.pointers.push_back(at);
      at += length * size;
      index.documents.push_back(static_cast<std::int64_t>(index.pointers.size()));
    }
    index.sequences = lens.size();
    index.document_count = index.documents.size();
    return index;
  }
  std::string bytes() const {
    return magic + le<std::uint64_t>(version) + static_cast<char>(code) +
           le<std::uint64_t>(sequences) + le<std::uint64_t>(document_count) +
           le_all<std::int32_t>(lengths) + le_all<std::int64_t>(pointers) +
           le_all<std::int64_t>(documents) + modes;
  }
};

class TokenFileTest : public FileTest {
 protected:
  static TokenLayout open(const std::vector<std::string>& paths,
                          const TokenFormatOptions& options = {}) {
    return read_token_layout(paths, options);
  }

  static Error token_refusal(const std::vector<std::string>& paths,
                             const TokenFormatOptions& options = {}) {
    try {
      read_token_layout(paths, options);
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorKind::kClosed, "nothing", "it was accepted");
  }

  // The bytes of the layout's segments, read with ifstream.
  static std::string payload(const Layout& layout) {
    std::string all;
    std::uint64_t row = 0;
    for (const Segment& segment : layout.segments) {
      EXPECT_EQ(segment.first_row, row);
      row += segment.rows;
      std::string bytes(segment.rows * layout.row_bytes, '\0');
      std::ifstream file(segment.path, std::ios::binary);
      file.seekg(static_cast<std::streamoff>(segment.data_offset));
      file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      EXPECT_EQ(static_cast<std::size_t>(file.gcount()), bytes.size());
      all += bytes;
    }
    EXPECT_EQ(row, layout.rows);
    return all;
  }

  // Expects the stream to be `count` tokens 0, 1, 2, ... of T.
  template <class T>
  static void expect_counting(const TokenLayout& tokens, std::uint64_t count) {
    EXPECT_EQ(tokens.layout.dtype, DType::of<T>());
    EXPECT_EQ(tokens.layout.rows, count);
    EXPECT_EQ(tokens.layout.shape, std::vector<std::uint64_t>{count});
    EXPECT_EQ(tokens.layout.row_bytes, sizeof(T));
    EXPECT_FALSE(tokens.layout.fortran);
    EXPECT_EQ(payload(tokens.layout), counting<T>(0, count));
  }
};

}  // namespace evenkeel
