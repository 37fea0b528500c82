#include "format/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "format/test_files.h"

namespace evenkeel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Shape = std::vector<std::uint64_t>;

class LayoutTest : public FileTest {
 protected:
  std::string npy(std::string_view name, std::string_view descr, std::string_view shape,
                  std::size_t data, bool fortran = false) const {
    return write(name, npy_file(npy_header(descr, shape, fortran), data));
  }
  std::string disagreement(const std::string& a, const std::string& b) const {
    const auto error = refusal_of({a, b});
    EXPECT_THAT(error.what(), AllOf(HasSubstr(a), HasSubstr(b)));
    return error.what();
  }
};

TEST_F(LayoutTest, FilesFollowOneAnotherAlongTheFirstAxis) {
  const auto a = npy("a", "'<f4'", "(2, 3)", 24), none = npy("none", "'<f4'", "(0, 3)", 0),
             b = npy("b", "'<f4'", "(5, 3)", 60);
  const Layout layout = read_layout({a, none, b}, {});
  EXPECT_EQ(layout.shape, (Shape{7, 3}));
  EXPECT_EQ(layout.rows, 7u);
  EXPECT_EQ(layout.row_bytes, 12u);
  EXPECT_EQ(layout.paths, (std::vector<std::string>{a, none, b}));
  ASSERT_EQ(layout.segments.size(), 2u);
  EXPECT_EQ(layout.segments[1].path, b);
  EXPECT_EQ(layout.segments[1].first_row, 2u);
  EXPECT_EQ(layout.segments[1].rows, 5u);
}

TEST_F(LayoutTest, FilesThatDifferAreRefusedByBothNames) {
  const auto a = npy("a", "'<f4'", "(2, 3)", 24);
  EXPECT_THAT(disagreement(a, npy("b", "'<i4'", "(2, 3)", 24)),
              AllOf(HasSubstr("float32"), HasSubstr("int32")));
  EXPECT_THAT(disagreement(a, npy("b", "'>f4'", "(2, 3)", 24)),
              AllOf(HasSubstr("big-endian"), HasSubstr("little-endian")));
  EXPECT_THAT(disagreement(a, npy("b", "'<f4'", "(2, 4)", 32)),
              AllOf(HasSubstr("(3,)"), HasSubstr("(4,)")));
  EXPECT_THAT(disagreement(a, npy("b", "'<f4'", "(2,)", 8)), HasSubstr("rows of shape ()"));
  EXPECT_THAT(disagreement(a, npy("b", "'<f4'", "(2, 3)", 24, true)),
              AllOf(HasSubstr("Fortran order"), HasSubstr("C order")));
}

TEST_F(LayoutTest, OneRowFitsBesideEitherOrder) {
  const auto one = npy("one", "'<f4'", "(1, 3)", 12), none = npy("none", "'<f4'", "(0, 3)", 0),
             f = npy("f", "'<f4'", "(2, 3)", 24, true), c = npy("c", "'<f4'", "(2, 3)", 24);
  EXPECT_TRUE(read_layout({one, none, f}, {}).fortran);
  EXPECT_TRUE(read_layout({f, one}, {}).fortran);
  EXPECT_FALSE(read_layout({one, c, none}, {}).fortran);
  EXPECT_THAT(refusal_of({one, f, c}).what(), AllOf(HasSubstr(f), HasSubstr(c)));
}

TEST_F(LayoutTest, ArraysWithoutAxesStandAlone) {
  const auto a = npy("a", "'<f4'", "()", 4);
  EXPECT_EQ(read_layout({a}, {}).rows, 1u);
  EXPECT_THAT(refusal_of({a, a}).what(), HasSubstr("no axis"));
}

TEST_F(LayoutTest, FlattenedKeepsBytesAndPlaces) {
  const auto a = npy("a", "'<f4'", "(2, 3)", 24, true), b = npy("b", "'<f4'", "(5, 3)", 60, true);
  const Layout layout = read_layout({a, b}, {}), flat = layout.flattened();
  EXPECT_EQ(flat.shape, Shape{21});
  EXPECT_EQ(flat.rows, 21u);
  EXPECT_EQ(flat.row_bytes, 4u);
  EXPECT_EQ(flat.bytes(), layout.bytes());
  EXPECT_FALSE(flat.fortran);
  EXPECT_EQ(flat.segments[1].first_row, 6u);
  EXPECT_EQ(flat.segments[1].rows, 15u);
  EXPECT_EQ(flat.segments[1].data_offset, layout.segments[1].data_offset);
  EXPECT_EQ(read_layout({npy("c", "'<f4'", "()", 4)}, {}).flattened().shape, Shape{1});
}

TEST_F(LayoutTest, MagicDecidesNotTheName) {
  EXPECT_EQ(read_layout({npy("tokens.bin", "'<u2'", "(3,)", 6)}, {}).format, "npy");
  const auto error = refusal_of({write("tokens.npy", std::string("\1\0\2\0\3\0", 6))});
  EXPECT_EQ(error.kind(), ErrorKind::kFormat);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("01 00 02 00 03 00"), HasSubstr("NPY")));
  EXPECT_THAT(error.hint_text(), HasSubstr("for raw numbers, give dtype (and shape, offset)"));
}

TEST_F(LayoutTest, CommonMistakesAreNamed) {
  EXPECT_THAT(refusal("PK\3\4 ...").what(), HasSubstr("bad ZIP archive"));
  EXPECT_THAT(refusal("PAR1 ...").what(), HasSubstr("write_feather"));
  EXPECT_THAT(refusal("version https://git-lfs.github.com/spec/v1\n").what(),
              HasSubstr("git lfs pull"));
  EXPECT_THAT(refusal("\x1f\x8b\x08").what(), HasSubstr("gzip"));
}

TEST_F(LayoutTest, GivenDtypeOfTheSameSizeRenamesNpyElements) {
  const auto a = npy("a", "'|V2'", "(3, 4)", 24);
  const Layout layout = read_layout({a}, {.dtype = DType::parse("bfloat16")});
  EXPECT_EQ(layout.format, "npy");
  EXPECT_EQ(layout.dtype.name(), "bfloat16");
  EXPECT_EQ(layout.shape, (Shape{3, 4}));
  EXPECT_FALSE(layout.swapped);
  EXPECT_TRUE(read_layout({a}, {.dtype = DType::parse("bfloat16"), .big_endian = true}).swapped);
  const auto dates = npy("dates", "'>M8[ns]'", "(3,)", 24);
  EXPECT_TRUE(read_layout({dates}, {.dtype = DType::parse("i8")}).swapped);
}

TEST_F(LayoutTest, GivenDtypeWithAnOffsetReadsRawBytesPastTheHeader) {
  const std::string bytes = npy_file(npy_header("'<f4'", "(8,)"), 32);
  const auto a = write("a", bytes);
  const FormatOptions behind{.dtype = DType::parse("f4"), .offset = bytes.size() - 32};
  EXPECT_EQ(read_layout({a}, behind).format, "raw");
  EXPECT_EQ(read_layout({a}, behind).shape, Shape{8});
  const FormatOptions odd{.dtype = DType::parse("u1"), .shape = {5}, .offset = 1};
  EXPECT_EQ(read_layout({a}, odd).format, "raw");
}

TEST_F(LayoutTest, NpyHeaderIsNeverReadAsData) {
  const std::string bytes = npy_file(npy_header("'<f4'", "(8,)"), 32);
  const auto a = write("a", bytes);
  const FormatOptions given[] = {{.dtype = DType::parse("u1")},
                                 {.dtype = DType::parse("f8")},
                                 {.dtype = DType::parse("f4"), .shape = {8}},
                                 {.dtype = DType::parse("f4"), .shape = {-1}},
                                 {.dtype = DType::parse("u1"), .shape = {4, 8}}};
  for (const FormatOptions& options : given) {
    const auto error = refusal_of({a}, options);
    EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
    const bool alike = options.dtype->size == 4;  // then the shape may be what is wrong
    EXPECT_THAT(error.what(),
                HasSubstr(alike ? "the NPY header defines them: float32 of shape (8,)"
                                : "says float32 of shape (8,), but " + options.dtype->name()));
    EXPECT_THAT(error.hint_text(), HasSubstr("offset=" + std::to_string(bytes.size() - 32)));
  }
  EXPECT_THAT(refusal_of({a}, given[4]).what(), HasSubstr("uint8 of shape (4, 8)"));
}

TEST_F(LayoutTest, GivenShapeWithoutDtypeIsRefused) {
  const auto a = npy("a", "'<f4'", "(8,)", 32);
  const FormatOptions given[] = {
      {.dtype = {}, .shape = {8}}, {.dtype = {}, .offset = 4}, {.dtype = {}, .big_endian = true}};
  for (const FormatOptions& options : given) {
    EXPECT_EQ(refusal_of({a}, options).kind(), ErrorKind::kInvalid);
  }
}

TEST_F(LayoutTest, WhatCannotBeOpenedSaysWhy) {
  EXPECT_EQ(refusal_of({path("missing")}).code(), ENOENT);
  EXPECT_EQ(refusal_of({path("")}).code(), EISDIR);
  EXPECT_THAT(refusal("").what(), HasSubstr("empty"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal_of({path("pipe")}).what(), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal_of({"/dev/null"}).what(), HasSubstr("not a regular file"));
  EXPECT_EQ(refusal_of({}).kind(), ErrorKind::kInvalid);
  EXPECT_EQ(refusal_of({std::string("a\0b", 3)}).kind(), ErrorKind::kInvalid);
}

TEST_F(LayoutTest, WithoutPermissionIsEACCES) {
  const auto a = npy("a", "'<f4'", "(8,)", 32);
  ASSERT_EQ(::chmod(a.c_str(), 0), 0);
  const bool root = ::geteuid() == 0;
  ASSERT_EQ(::seteuid(root ? 65534 : ::geteuid()), 0);  // root may read everything
  const auto error = refusal_of({a});
  ASSERT_EQ(::seteuid(root ? 0 : ::geteuid()), 0);
  EXPECT_EQ(error.code(), EACCES);
}

TEST_F(LayoutTest, IdentityIsThatOfTheFile) {
  const auto a = npy("a", "'<f4'", "(8,)", 32);
  struct stat status;
  ASSERT_EQ(::stat(a.c_str(), &status), 0);
  const FileIdentity identity = read_layout({a}, {}).segments.at(0).identity;
  EXPECT_EQ(identity.inode, status.st_ino);
  EXPECT_EQ(identity.device, status.st_dev);
  EXPECT_EQ(identity.size, static_cast<std::uint64_t>(status.st_size));
  EXPECT_EQ(identity.mtime_ns, status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec);
}

TEST_F(LayoutTest, TenThousandShardsOpenQuicklyAndStayClosed) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const std::vector<std::string> paths(10'000, npy("shard", "'<u2'", "(8,)", 16));
  const auto before = open_files();
  const std::clock_t start = std::clock();  // CPU time, because the machine may be busy
  const Layout layout = read_layout(paths, {});
  const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(layout.rows, 80'000u);
  EXPECT_EQ(open_files(), before);
  EXPECT_LT(took, 5.0);  // usually 0.1 s
  RecordProperty("seconds", std::to_string(took));
}

}  // namespace
}  // namespace evenkeel
