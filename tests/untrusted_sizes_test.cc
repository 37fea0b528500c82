// Headers are untrusted: every format refuses numbers whose products or sums exceed 64 bits, or
// that exceed the file, before it allocates anything of that size.
#include <gtest/gtest.h>

#include "format/token_test_files.h"

namespace evenkeel {
namespace {

class UntrustedSizes : public TokenFileTest {
 protected:
  void expect_refused(const Error& error, const std::string& what) {
    EXPECT_TRUE(error.kind() == ErrorKind::kFormat || error.kind() == ErrorKind::kInvalid)
        << what << ": " << error.what();
  }
};

TEST_F(UntrustedSizes, NpyShapes) {
  for (const char* shape :
       {"(4294967296, 4294967296)", "(9223372036854775807,)", "(2305843009213693952,)",
        "(2305843009213693951, 8)", "(9223372036854775807, 9223372036854775807, 0)",
        "(0, 9223372036854775807, 9223372036854775807)", "(18446744073709551615,)",
        "(18446744073709551618,)", "(99999999999999999999999999,)", "(-1,)", "(1, -5)",
        "(1152921504606846976, 16)"}) {
    for (const char* descr : {"'<f8'", "'|u1'", "'|V4294967295'"}) {
      expect_refused(refusal(npy_file(npy_header(descr, shape), 16)), shape);
      expect_refused(token_refusal({write("t", npy_file(npy_header(descr, shape), 16))}), shape);
    }
  }
}

TEST_F(UntrustedSizes, NpyElements) {
  for (const char* descr :
       {"'|V4294967296'", "'|V18446744073709551617'", "'<U1073741824'", "('<f8', (536870912,))",
        "('|u1', (65536, 65537))", "('|V65536', (4294967296, 4294967296))",
        "[('a', '|V4294967295'), ('b', '|u1')]", "('|u1', (0,))", "[]", "'|V0'"}) {
    expect_refused(refusal(npy_file(npy_header(descr, "(1,)"), 16)), descr);
  }
}

TEST_F(UntrustedSizes, NpyHeaderLengths) {
  const std::string claims[] = {std::string("\x93NUMPY\x01\x00\xff\xff", 10),
                                std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12),
                                std::string("\x93NUMPY\x03\x00\xf0\xff\xff\x7f{}", 14)};
  for (const std::string& bytes : claims) expect_refused(refusal(bytes), "header length");
}

TEST_F(UntrustedSizes, RawShapesAndOffsets) {
  constexpr std::int64_t kMost = INT64_MAX;
  const std::string bytes(16, 'x');
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{kMost},
                                                 {kMost, kMost},
                                                 {-1, kMost, 4},
                                                 {-1, 0},
                                                 {-2},
                                                 {1, -1},
                                                 {std::int64_t{1} << 61, 8},
                                                 {17}}) {
    expect_refused(refusal(bytes, {.dtype = DType{DTypeKind::kUint, 8}, .shape = shape}),
                   std::to_string(shape[0]));
  }
  for (const std::uint64_t offset : {std::uint64_t{17}, UINT64_MAX, UINT64_MAX - 7}) {
    expect_refused(refusal(bytes, {.dtype = DType{DTypeKind::kUint, 1}, .offset = offset}),
                   "offset");
  }
}

TEST_F(UntrustedSizes, LlmcCounts) {
  for (const std::int32_t tokens : {-1, INT32_MIN, INT32_MAX, 5, 1 << 30}) {
    expect_refused(token_refusal({write("s", llmc_file(20240520, 1, tokens, "12345678"))}),
                   std::to_string(tokens));
    expect_refused(token_refusal({write("s", llmc_file(20240801, 7, tokens, "12345678"))}),
                   std::to_string(tokens));
  }
}

TEST_F(UntrustedSizes, MegatronCounts) {
  const std::string bin = write("m.bin", counting<std::uint16_t>(0, 10));
  for (const std::uint64_t count :
       {std::uint64_t{0}, std::uint64_t{4}, UINT64_MAX, UINT64_MAX / 12 + 1, std::uint64_t{1} << 61,
        std::uint64_t{1} << 63, (UINT64_MAX - 33) / 12}) {
    MegatronIndex index = MegatronIndex::of({3, 0, 7});
    index.sequences = count;
    write("m.idx", index.bytes());
    expect_refused(token_refusal({bin}), "sequences " + std::to_string(count));
    index = MegatronIndex::of({3, 0, 7});
    index.document_count = count == 4 ? 5 : count;
    write("m.idx", index.bytes());
    expect_refused(token_refusal({bin}), "documents " + std::to_string(count));
  }
}

TEST_F(UntrustedSizes, MegatronPlacesOfSequences) {
  const std::string bin = write("m.bin", counting<std::uint16_t>(0, 10));
  for (const std::int64_t place : {std::int64_t{-1}, INT64_MIN, INT64_MAX, INT64_MAX - 5,
                                   std::int64_t{20}, std::int64_t{1} << 62}) {
    MegatronIndex index = MegatronIndex::of({3, 0, 7});
    index.pointers[2] = place;
    write("m.idx", index.bytes());
    expect_refused(token_refusal({bin}), "pointer " + std::to_string(place));
  }
  for (const std::int64_t length : {-1, INT32_MIN, INT32_MAX, 8}) {
    MegatronIndex index = MegatronIndex::of({3, 0, 7});
    index.lengths[2] = length;
    write("m.idx", index.bytes());
    expect_refused(token_refusal({bin}), "length " + std::to_string(length));
  }
}

TEST_F(UntrustedSizes, DatatroveEnds) {
  const std::string tokens = write("d.ds", "12345678");
  // The second and third wrap to 8 bytes, times 2 and times 4.
  for (const std::uint64_t end :
       {UINT64_MAX, (std::uint64_t{1} << 63) + 4, (std::uint64_t{1} << 62) + 2, std::uint64_t{3}}) {
    write("d.ds.index", le<std::uint64_t>(end));
    expect_refused(token_refusal({tokens}), std::to_string(end));
  }
}

}  // namespace
}  // namespace evenkeel
