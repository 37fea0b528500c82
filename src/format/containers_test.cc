// Small container files that are written by hand. The tests in python/tests use files written by
// the formats' own libraries.
#include <gmock/gmock.h>

#include <filesystem>

#include "format/container.h"
#include "format/test_files.h"

namespace evenkeel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Containers : public FileTest {
 protected:
  Layout open_named(std::string_view bytes, const std::string& name) const {
    return read_layout({write("file", bytes)}, {.name = name});
  }
  std::string refused(std::string_view bytes, const std::string& name = "") const {
    return refusal(bytes, {.name = name}).what();
  }
};

std::string little_bytes(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 255);
  return text;
}

// An archive with one member.
std::string zip_of(const std::string& name, const std::string& data, int method = 0) {
  const std::string sizes = little_bytes(data.size(), 4) + little_bytes(data.size(), 4);
  const std::string local = "PK\3\4" + little_bytes(20, 2) + little_bytes(0, 2) +
                            little_bytes(method, 2) + std::string(8, '\0') + sizes +
                            little_bytes(name.size(), 2) + little_bytes(0, 2) + name;
  const std::string entry = "PK\1\2" + little_bytes(20, 2) + little_bytes(20, 2) +
                            little_bytes(0, 2) + little_bytes(method, 2) + std::string(8, '\0') +
                            sizes + little_bytes(name.size(), 2) + std::string(16, '\0') + name;
  return local + data + entry + "PK\5\6" + std::string(4, '\0') + little_bytes(1, 2) +
         little_bytes(1, 2) + little_bytes(entry.size(), 4) +
         little_bytes(local.size() + data.size(), 4) + little_bytes(0, 2);
}

TEST_F(Containers, Npz) {
  const std::string npy = npy_file(npy_header("'<i4'", "(3, 2)"), 24);
  const std::string file = zip_of("x.npy", npy);
  const Layout layout = open_named(file, "x");
  EXPECT_EQ(layout.format, "npz");
  EXPECT_THAT(layout.shape, ElementsAre(3u, 2u));
  EXPECT_EQ(layout.segments[0].data_offset, 30 + 5 + npy.size() - 24);
  EXPECT_EQ(layout.segments[0].identity.size, file.size());
  EXPECT_EQ(open_named(file, "").rows, 3u);
  EXPECT_THAT(refused(file, "y"), HasSubstr("no array \"y\": it holds x (int32)"));
  EXPECT_THAT(refused(zip_of("x.npy", npy, 8), "x"), HasSubstr("compressed"));
  EXPECT_THAT(refused(zip_of("x.txt", npy), "x.txt"), HasSubstr("not an NPY file"));
  EXPECT_THAT(refused(zip_of("x.npy", npy.substr(0, 60)), "x"), HasSubstr("truncated"));
}

std::string fits_header(const std::vector<std::string>& cards) {
  std::string text;
  for (std::string card : cards) text += card.append(80 - card.size(), ' ');
  text += "END";
  return text.append(2880 - text.size(), ' ');
}

TEST_F(Containers, Fits) {
  const std::vector<std::string> cards = {
      "SIMPLE  =                    T", "BITPIX  =                  -32 / a comment",
      "NAXIS   =                    2", "NAXIS1  =                    5",
      "NAXIS2  =                    3"};
  const std::string file = fits_header(cards) + std::string(2880, '\1');
  const Layout layout = open_named(file, "0");
  EXPECT_THAT(layout.shape, ElementsAre(3u, 5u));
  EXPECT_EQ(layout.dtype, DType::of<float>());
  EXPECT_TRUE(layout.swapped);
  EXPECT_EQ(layout.segments[0].data_offset, 2880u);
  EXPECT_THAT(refused(file.substr(0, 2900)), HasSubstr("beyond the file"));
  EXPECT_THAT(refused(file.substr(0, 700)), HasSubstr("does not end"));
  auto scaled = cards;
  scaled.push_back("BZERO   =                32768");
  EXPECT_THAT(refused(fits_header(scaled) + std::string(2880, '\1')),
              HasSubstr("dtype='>f4', shape=(3, 5), offset=2880"));
  for (const char* card : {"BZERO   =             3.2768D+04", "BZERO   =             0.00032X+08",
                           "BZERO   =                     ", "BSCALE  =              1.0D+01"}) {
    scaled.back() = card;
    EXPECT_THAT(refused(fits_header(scaled) + std::string(2880, '\1')), HasSubstr("computed"))
        << card;
  }
  for (const char* card : {"BZERO   =              0.0D+00", "BSCALE  =             +0.1D1 / one",
                           "BSCALE  =                   1.", "BSCALE  =                 1E+0"}) {
    scaled.back() = card;
    EXPECT_EQ(open_named(fits_header(scaled) + std::string(2880, '\1'), "0").rows, 3u) << card;
  }
  auto blank = cards;
  blank.push_back("BLANK   =               -32768");
  EXPECT_EQ(open_named(fits_header(blank) + std::string(2880, '\1'), "0").rows, 3u);  // floats
  blank[1] = "BITPIX  =                   16";
  EXPECT_THAT(refused(fits_header(blank) + std::string(2880, '\1')),
              AllOf(HasSubstr("-32768 (BLANK)"), HasSubstr("dtype='>i2', shape=(3, 5)")));
  auto quoted = cards;
  quoted.push_back("EXTNAME = 'it''s '  / 'a' name");
  EXPECT_EQ(open_named(fits_header(quoted) + std::string(2880, '\1'), "it's").rows, 3u);
  auto huge = cards;
  huge[3] = "NAXIS1  =  9223372036854775807";
  EXPECT_THAT(refused(fits_header(huge)), HasSubstr("beyond the file"));
}

TEST_F(Containers, DamagedArrow) {
  EXPECT_THAT(refused(std::string("ARROW1\0\0", 8)), HasSubstr("does not begin with a schema"));
  const std::string stream =
      "\xff\xff\xff\xff" + little_bytes(16, 4) + little_bytes(200, 4) + little_bytes(0, 12);
  EXPECT_THAT(refused(stream), HasSubstr("a place outside it"));
  EXPECT_THAT(refused(stream), HasSubstr(path("refused")));
}

TEST_F(Containers, NamesAreForContainers) {
  EXPECT_THAT(refused(npy_file(npy_header("'<i4'", "(3,)"), 12), "x"),
              HasSubstr("holds one array"));
  EXPECT_THAT(refused("nothing known", "x"), HasSubstr("not a known format"));
  EXPECT_THAT(refused("nothing known", "x"), HasSubstr("known: NPY, Arrow, npz, FITS, NIfTI"));
  FormatOptions options{.name = "x"};
  options.dtype = DType::of<float>();
  EXPECT_THAT(refusal(zip_of("x.npy", "data"), options).what(), HasSubstr("leave them out"));
}

TEST_F(Containers, FoldersOfDatasets) {
  EXPECT_TRUE(dataset_files(path("")).empty());
  write("state.json", R"({"_data_files": [{"filename": "a.arrow"}, {"filename": "b.arrow"}]})");
  const auto files = dataset_files(path(""));
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[1], path("") + "b.arrow");
  for (const char* text : {"", "[]", "{}", R"({"_data_files": [{}]})", R"({"_data_files": []})",
                           R"({"_data_files": [{"filename": "../a"}]})"}) {
    write("state.json", text);
    EXPECT_THROW(dataset_files(path("")), Error) << text;
  }
}

TEST_F(Containers, FoldersForPython) {
  for (const char* file : {".zarray", ".zgroup", "zarr.json", "index.json"}) {
    write(file, "{}");
    try {
      read_layout({path("")}, {});
      FAIL() << file;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("C++ does not read")) << file;
      EXPECT_EQ(error.hint_text(), "from Python: evenkeel.open(path)") << file;
    }
    std::filesystem::remove(path(file));
  }
}

}  // namespace
}  // namespace evenkeel
