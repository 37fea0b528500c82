// FITS and NIfTI: images after plain headers, in either byte order. See docs/formats.md.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/checked.h"
#include "base/number.h"
#include "evenkeel/bytes.h"
#include "format/container.h"
#include "format/token_part.h"

namespace evenkeel {
namespace {

Error bad_image(const Source& source, std::uint64_t place, const std::string& problem) {
  return Error(ErrorKind::kFormat, "open", problem).in(source.path).at(place);
}

// An image at `offset`, row-major, checked against the size of the file.
Part image_part(const Source& source, std::string_view format, DType dtype, bool big_endian,
                std::vector<std::uint64_t> shape, std::uint64_t offset) {
  const auto size = measure(shape, dtype.size);
  if (!size || offset > source.identity.size || size->bytes > source.identity.size - offset) {
    throw bad_image(source, offset,
                    "an image of shape " + shape_text(shape) + " of " + dtype.name() + " at byte " +
                        with_commas(offset) + ", but the file has " +
                        with_commas(source.identity.size) + " bytes")
        .hint("the download or copy may be incomplete");
  }
  if (size->row_bytes == 0) throw bad_image(source, offset, "an image without bytes");
  Part part;
  part.format = format;
  part.dtype = dtype;
  part.swapped = needs_swap(dtype, big_endian);
  part.shape = std::move(shape);
  part.row_bytes = size->row_bytes;
  part.segment = source.segment(offset, size->rows);
  return part;
}

// The error for an image whose values are computed from the stored numbers. Its hint says how to
// read the stored numbers.
Error scaled_image(const Source& source, const Part& part, const std::string& problem,
                   bool big_endian) {
  const char* const order = big_endian ? ">" : "<";
  static const std::map<DTypeKind, std::string> kinds = {{DTypeKind::kInt, "i"},
                                                         {DTypeKind::kUint, "u"},
                                                         {DTypeKind::kFloat, "f"},
                                                         {DTypeKind::kComplex, "c"}};
  const auto kind = kinds.find(part.dtype.kind);
  const std::string dtype =
      (kind == kinds.end() ? "V" : order + kind->second) + std::to_string(part.dtype.size);
  return bad_image(source, part.segment.data_offset, problem)
      .hint("to read the stored numbers: dtype='" + dtype + "', shape=" + shape_text(part.shape) +
            ", offset=" + std::to_string(part.segment.data_offset));
}

// ---- FITS

constexpr std::uint64_t kFitsBlock = 2880, kCard = 80;
constexpr std::uint64_t kMostHeaderBlocks = 4096, kMostUnits = 4096;

// One part of the file: a header and its data.
struct HeaderUnit {
  std::uint64_t number = 0, data = 0, data_bytes = 0, end = 0;
  std::int64_t bits = 0;
  std::vector<std::uint64_t> shape;
  std::map<std::string, std::string> cards;

  std::string name() const {
    const auto found = cards.find("EXTNAME");
    return found == cards.end() || found->second.empty() ? std::to_string(number) : found->second;
  }
};

// The value of a card, without quotes, comment and surrounding spaces.
std::string card_value(std::string_view card) {
  std::string_view value = card.substr(10);
  const auto trim = [](std::string_view text) {
    const std::size_t begin = text.find_first_not_of(' ');
    if (begin == text.npos) return std::string_view();
    return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
  };
  value = trim(value);
  if (value.starts_with('\'')) {
    std::string text;
    for (std::size_t i = 1; i < value.size(); ++i) {
      if (value[i] == '\'' && value.substr(++i, 1) != "'") break;  // two quotes stand for one
      text += value[i];
    }
    return std::string(trim(text));
  }
  return std::string(trim(value.substr(0, value.find('/'))));
}

std::optional<std::int64_t> whole(const std::map<std::string, std::string>& cards,
                                  const std::string& key, std::optional<std::int64_t> otherwise) {
  const auto found = cards.find(key);
  if (found == cards.end()) return otherwise;
  const char* const text = found->second.c_str();
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0') return std::nullopt;
  return value;
}

// A real number; FITS also writes exponents with D.
std::optional<double> real(std::string text) {
  std::ranges::replace(text, 'D', 'E');
  const char* const begin = text.c_str() + (text.starts_with('+') ? 1 : 0);
  const char* const end = text.c_str() + text.size();
  double value = 0;
  const auto [at, failure] = std::from_chars(begin, end, value);
  return failure == std::errc() && at == end ? std::optional(value) : std::nullopt;
}

void read_cards(const Source& source, std::uint64_t place, HeaderUnit& unit) {
  for (std::uint64_t block = 0; block < kMostHeaderBlocks; ++block, place += kFitsBlock) {
    const std::string bytes = source.read(place, kFitsBlock);
    if (bytes.size() < kFitsBlock) break;
    for (std::uint64_t at = 0; at < kFitsBlock; at += kCard) {
      const std::string_view card = std::string_view(bytes).substr(at, kCard);
      const std::string key(card.substr(0, std::min<std::size_t>(8, card.find(' '))));
      if (key == "END") {
        unit.data = place + kFitsBlock;
        return;
      }
      if (card.substr(8, 2) == "= ") unit.cards.emplace(key, card_value(card));
    }
  }
  throw bad_image(source, place, "bad FITS file: a header that does not end");
}

HeaderUnit read_unit(const Source& source, std::uint64_t place, std::uint64_t number) {
  HeaderUnit unit;
  unit.number = number;
  read_cards(source, place, unit);
  const auto fail = [&](const std::string& problem) {
    return bad_image(source, place, "bad FITS file: " + problem);
  };
  const auto bits = whole(unit.cards, "BITPIX", {}), axes = whole(unit.cards, "NAXIS", {});
  const std::int64_t known[] = {8, 16, 32, 64, -32, -64};
  if (!bits || std::ranges::find(known, *bits) == std::end(known)) throw fail("a bad BITPIX");
  if (!axes || *axes < 0 || *axes > 999) throw fail("a bad NAXIS");
  unit.bits = *bits;
  std::optional<std::uint64_t> items = *axes == 0 ? 0 : 1;
  for (std::int64_t i = 1; i <= *axes; ++i) {
    const auto length = whole(unit.cards, "NAXIS" + std::to_string(i), {});
    if (!length || *length < 0) throw fail("a bad NAXIS" + std::to_string(i));
    unit.shape.push_back(static_cast<std::uint64_t>(*length));
    items = items ? checked_mul(*items, unit.shape.back()) : items;
  }
  std::ranges::reverse(unit.shape);  // FITS names the axis that runs fastest first
  const auto parameters = whole(unit.cards, "PCOUNT", 0), groups = whole(unit.cards, "GCOUNT", 1);
  if (!parameters || *parameters < 0 || !groups || *groups < 0) throw fail("bad groups");
  items = items ? checked_add(*items, static_cast<std::uint64_t>(*parameters)) : items;
  items = items ? checked_mul(*items, static_cast<std::uint64_t>(*groups)) : items;
  const auto bytes =
      items ? checked_mul(*items, static_cast<std::uint64_t>(std::abs(*bits)) / 8) : std::nullopt;
  const auto end = bytes ? checked_add(unit.data, *bytes) : std::nullopt;
  if (!end || *end > source.identity.size) {
    throw fail("its data ends beyond the file, which has " + with_commas(source.identity.size) +
               " bytes")
        .hint("the download or copy may be incomplete");
  }
  unit.data_bytes = *bytes;
  const std::uint64_t blocks = divide_up(*bytes, kFitsBlock);
  unit.end = unit.data + blocks * kFitsBlock;
  return unit;
}

std::vector<HeaderUnit> read_units(const Source& source) {
  std::vector<HeaderUnit> units;
  for (std::uint64_t place = 0; place < source.identity.size && units.size() < kMostUnits;) {
    // Records after the last unit are allowed. They are not units.
    if (place > 0 && source.read(place, 8) != "XTENSION") break;
    units.push_back(read_unit(source, place, units.size()));
    place = units.back().end;
  }
  return units;
}

DType type_of(const HeaderUnit& unit) {
  const auto size = static_cast<std::uint32_t>(std::abs(unit.bits) / 8);
  if (unit.bits == 8) return {DTypeKind::kUint, 1};
  return {unit.bits < 0 ? DTypeKind::kFloat : DTypeKind::kInt, size};
}

std::string why_no_image(const HeaderUnit& unit) {
  const auto kind = unit.cards.find("XTENSION");
  if (unit.cards.contains("ZIMAGE")) return "the image is compressed";
  if (kind != unit.cards.end() && kind->second != "IMAGE") return "it is a table, not an image";
  if (unit.cards.contains("GROUPS")) return "it holds random groups";
  if (unit.data_bytes == 0) return "it has no data";
  return "";
}

// ---- NIfTI

constexpr std::uint64_t kNifti1Bytes = 348, kNifti2Bytes = 540;
constexpr std::string_view kNifti1("n+1\0", 4), kNifti1Pair("ni1\0", 4);
constexpr std::string_view kNifti2("n+2\0\r\n\032\n", 8), kNifti2Pair("ni2\0\r\n\032\n", 8);

// Numbers of a header in either byte order.
class HeaderNumbers {
 public:
  HeaderNumbers(std::string_view head, bool big) : head_(head), big_(big) {}
  template <class T>
  T at(std::size_t place) const {
    std::string bytes(head_.substr(place, sizeof(T)));
    if (big_) std::ranges::reverse(bytes);
    if constexpr (std::is_same_v<T, float>) {
      return std::bit_cast<float>(load_number<std::uint32_t>(bytes.data()));
    } else if constexpr (std::is_same_v<T, double>) {
      return std::bit_cast<double>(load_number<std::uint64_t>(bytes.data()));
    } else {
      return load_number<T>(bytes.data());
    }
  }

 private:
  std::string_view head_;
  bool big_;
};

bool has_nifti1(std::string_view head, std::string_view magic) {
  return head.size() >= kNifti1Bytes && head.substr(344, 4) == magic;
}

std::optional<DType> nifti_type(std::int16_t code) {
  using enum DTypeKind;
  switch (code) {
    case 2:
      return DType{kUint, 1};
    case 4:
      return DType{kInt, 2};
    case 8:
      return DType{kInt, 4};
    case 16:
      return DType{kFloat, 4};
    case 32:
      return DType{kComplex, 8};
    case 64:
      return DType{kFloat, 8};
    case 128:
      return DType{kRecord, 3};  // RGB
    case 256:
      return DType{kInt, 1};
    case 512:
      return DType{kUint, 2};
    case 768:
      return DType{kUint, 4};
    case 1024:
      return DType{kInt, 8};
    case 1280:
      return DType{kUint, 8};
    case 1792:
      return DType{kComplex, 16};
    case 2304:
      return DType{kRecord, 4};  // RGBA
    default:
      return std::nullopt;
  }
}

}  // namespace

bool is_fits(std::string_view head) { return head.starts_with("SIMPLE  ="); }

std::vector<Member> fits_images(const Source& source) {
  std::vector<Member> members;
  for (const HeaderUnit& unit : read_units(source)) {
    members.push_back({unit.name(), type_of(unit).name(), unit.shape, false, why_no_image(unit)});
  }
  return members;
}

Part read_fits(const Source& source, const std::string& name) {
  const std::vector<HeaderUnit> units = read_units(source);
  const HeaderUnit* found = nullptr;
  std::size_t images = 0;
  for (const HeaderUnit& unit : units) {
    const bool image = why_no_image(unit).empty();
    images += image ? 1 : 0;
    const bool wanted =
        name.empty() ? image : unit.name() == name || std::to_string(unit.number) == name;
    if (wanted && !found) found = &unit;
  }
  if (!found || (name.empty() && images > 1)) {
    throw no_such_member(source, name, fits_images(source));
  }
  const std::string refused = why_no_image(*found);
  if (!refused.empty()) {
    throw bad_image(source, found->data, "part \"" + printable(found->name()) + "\": " + refused)
        .hint("save it as an image that is not compressed: astropy.io.fits.ImageHDU");
  }
  Part part = image_part(source, "fits", type_of(*found), true, found->shape, found->data);
  for (const auto& [key, usual] : {std::pair("BSCALE", 1.0), {"BZERO", 0.0}}) {
    const auto card = found->cards.find(key);
    if (card == found->cards.end() || real(card->second) == usual) continue;
    throw scaled_image(source, part,
                       std::string("its values are computed from the stored numbers: ") + key +
                           " is " + printable(card->second),
                       /*big_endian=*/true);
  }
  const auto blank = found->cards.find("BLANK");
  if (blank != found->cards.end() && found->bits > 0) {
    throw scaled_image(
        source, part,
        "the number " + printable(blank->second) + " (BLANK) stands for values that are missing",
        /*big_endian=*/true);
  }
  return part;
}

bool is_nifti(std::string_view head) {
  if (has_nifti1(head, kNifti1) || has_nifti1(head, kNifti1Pair)) {
    return head.starts_with(std::string_view("\x5c\x01\0\0", 4)) ||
           head.starts_with(std::string_view("\0\0\x01\x5c", 4));
  }
  const bool second = head.starts_with(std::string_view("\x1c\x02\0\0", 4)) ||
                      head.starts_with(std::string_view("\0\0\x02\x1c", 4));
  return second && head.size() >= kNifti2Bytes &&
         (head.substr(4, 8) == kNifti2 || head.substr(4, 8) == kNifti2Pair);
}

std::vector<Member> nifti_images(const Source& source, std::string_view head) {
  const Part part = read_nifti(source, head, "");
  return {{"0", part.dtype.name(), part.shape, false, ""}};
}

Part read_nifti(const Source& source, std::string_view head, const std::string& name) {
  const bool first = has_nifti1(head, kNifti1) || has_nifti1(head, kNifti1Pair);
  const bool big = head[0] == '\0';
  const HeaderNumbers header(head, big);
  const auto fail = [&](const std::string& problem) {
    return bad_image(source, 0, "bad NIfTI header: " + problem);
  };
  if (has_nifti1(head, kNifti1Pair) || (!first && head.substr(4, 8) == kNifti2Pair)) {
    throw bad_image(source, 0, "a NIfTI header whose data lies in another file (.img)")
        .hint("save it as one .nii file: nibabel.save(nibabel.load(path), 'image.nii')");
  }
  if (!name.empty() && name != "0") throw no_such_member(source, name, nifti_images(source, head));
  const std::int64_t axes = first ? header.at<std::int16_t>(40) : header.at<std::int64_t>(16);
  if (axes < 1 || axes > 7) throw fail(std::to_string(axes) + " axes");
  std::vector<std::uint64_t> shape;
  for (std::size_t i = 1; i <= static_cast<std::size_t>(axes); ++i) {
    const std::int64_t length =
        first ? header.at<std::int16_t>(40 + 2 * i) : header.at<std::int64_t>(16 + 8 * i);
    if (length < 1) throw fail("an axis of length " + std::to_string(length));
    shape.push_back(static_cast<std::uint64_t>(length));
  }
  std::ranges::reverse(shape);  // the axis that runs fastest is named first
  const auto code = header.at<std::int16_t>(first ? 70 : 12);
  const auto dtype = nifti_type(code);
  if (!dtype) throw fail("data type " + std::to_string(code) + " is not known");
  // The header of version 1 has floats. They have fewer digits.
  const auto text = [&](double value) {
    return first ? number_text(static_cast<float>(value)) : number_text(value);
  };
  const double offset =
      first ? header.at<float>(108) : static_cast<double>(header.at<std::int64_t>(168));
  if (!(offset >= static_cast<double>(first ? kNifti1Bytes : kNifti2Bytes)) || offset > 1e15) {
    throw fail("the data begins at byte " + text(offset));
  }
  Part part = image_part(source, "nifti", *dtype, big, std::move(shape),
                         static_cast<std::uint64_t>(offset));
  const double slope = first ? header.at<float>(112) : header.at<double>(176);
  const double shift = first ? header.at<float>(116) : header.at<double>(184);
  const bool scaled = std::isfinite(slope) && slope != 0 && (slope != 1 || shift != 0);
  if (scaled) {
    throw scaled_image(
        source, part,
        "its values are the stored numbers times " + text(slope) + " plus " + text(shift), big);
  }
  return part;
}

}  // namespace evenkeel
