#include "format/npy.h"

#include <utility>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::uint64_t kMostHeader = 1_MiB;
constexpr std::size_t kMostAxes = 64;  // NumPy's own limit
constexpr const char* kIncomplete = "the download or copy may be incomplete";

Error npy_error(const Source& source, std::string problem) {
  return Error(ErrorKind::kFormat, "open", std::move(problem)).in(source.path);
}

// Where the header's text lies, from the bytes in front of it.
struct Place {
  std::uint64_t begin, length;
};

Place locate(const Source& source, std::string_view head) {
  const auto byte = [&](std::size_t i) {
    return std::uint64_t{static_cast<unsigned char>(head[i])};
  };
  if (head.size() < 10 || (byte(6) != 1 && head.size() < 12)) {
    throw npy_error(source,
                    "NPY header truncated: the file has " + std::to_string(head.size()) + " bytes")
        .hint(kIncomplete);
  }
  if (byte(6) < 1 || byte(6) > 3 || byte(7) != 0) {
    throw npy_error(source, "NPY version " + std::to_string(byte(6)) + "." +
                                std::to_string(byte(7)) + " is not known")
        .at(6)
        .hint("versions 1.0, 2.0 and 3.0 are read; save it again with numpy.save");
  }
  const std::uint64_t low = byte(8) | byte(9) << 8;
  if (byte(6) == 1) return {10, low};
  return {12, low | byte(10) << 16 | byte(11) << 24};
}

std::vector<std::uint64_t> read_shape(const Literal& shape) {
  if (shape.type != Literal::Type::kTuple) throw LiteralError{"shape must be a tuple", shape.at};
  if (shape.items.size() > kMostAxes) throw LiteralError{"more than 64 axes", shape.at};
  std::vector<std::uint64_t> lengths;
  for (const Literal& axis : shape.items) {
    if (axis.type != Literal::Type::kInt || axis.negative) {
      throw LiteralError{"shape must be whole numbers of 0 or more", axis.at};
    }
    lengths.push_back(axis.number);
  }
  return lengths;
}

struct Entries {
  Literal descr, fortran, shape;
};

Entries read_entries(std::string_view text) {
  Literal dict = parse_literal(text);
  if (dict.type != Literal::Type::kDict) throw LiteralError{"expected a dict", dict.at};
  Literal *descr = nullptr, *fortran = nullptr, *shape = nullptr;
  for (std::size_t i = 0; i < dict.items.size(); i += 2) {
    const Literal& key = dict.items[i];
    const std::string_view name = key.type == Literal::Type::kString ? key.text : "";
    Literal** entry = name == "descr"           ? &descr
                      : name == "fortran_order" ? &fortran
                      : name == "shape"         ? &shape
                                                : nullptr;
    if (!entry || *entry) {
      throw LiteralError{"the keys must be descr, fortran_order and shape, each once", key.at};
    }
    *entry = &dict.items[i + 1];
  }
  if (!descr || !fortran || !shape) {
    const char* missing = !descr ? "descr" : !fortran ? "fortran_order" : "shape";
    throw LiteralError{std::string("the key ") + missing + " is missing", dict.at};
  }
  if (fortran->type != Literal::Type::kBool) {
    throw LiteralError{"fortran_order must be True or False", fortran->at};
  }
  return {std::move(*descr), std::move(*fortran), std::move(*shape)};
}

NpyHeader interpret(std::string_view text) {
  const Entries entries = read_entries(text);
  return {.element = read_descr(entries.descr),
          .fortran = entries.fortran.truth,
          .shape = read_shape(entries.shape),
          .data_offset = 0,
          .text = std::string(text)};
}

void require_size(const Source& source, const NpyHeader& header, const Measure& size) {
  const std::uint64_t expected = header.data_offset + size.bytes, actual = source.identity.size;
  if (expected == actual) return;
  const std::string sum = "shape " + shape_text(header.shape) + " of " +
                          header.element.dtype.name() + " after a header of " +
                          with_commas(header.data_offset) + " bytes makes " +
                          with_commas(expected) + " bytes, the file has " + with_commas(actual);
  if (actual < expected) throw npy_error(source, "truncated: " + sum).at(actual).hint(kIncomplete);
  throw npy_error(source, "too long: " + sum)
      .at(expected)
      .hint(
          "the header may be older than the data; to read it as raw binary, give dtype and "
          "offset=" +
          std::to_string(header.data_offset));
}

}  // namespace

bool is_npy(std::string_view head) { return head.starts_with(kNpyMagic); }

NpyHeader read_npy_header(const Source& source, std::string_view head) {
  const Place place = locate(source, head);
  const std::uint64_t end = place.begin + place.length;
  if (place.length > kMostHeader) {
    throw npy_error(source, "an NPY header of " + with_commas(place.length) + " bytes is refused")
        .at(8)
        .hint("headers of up to 1 MiB are read; the length may be damaged");
  }
  if (end > source.identity.size) {
    throw npy_error(source, "truncated: the NPY header ends at byte " + with_commas(end) +
                                ", the file has " + with_commas(source.identity.size))
        .at(8)
        .hint(kIncomplete);
  }
  std::string longer;
  if (end > head.size()) {
    longer = source.read(0, end);
    head = longer;
  }
  try {
    NpyHeader header = interpret(head.substr(place.begin, place.length));
    header.data_offset = end;
    header.utf8 = head[6] == 3;
    return header;
  } catch (const LiteralError& error) {
    throw npy_error(source, "bad NPY header: " + error.problem).at(place.begin + error.at);
  }
}

Literal npy_descr(const NpyHeader& header) { return read_entries(header.text).descr; }

Part npy_part(const Source& source, const NpyHeader& header, const FormatOptions& options) {
  const Element& element = header.element;
  if (!element.supported && !options.dtype) {
    throw npy_error(source,
                    "numbers of this type are not supported (its descr names a float, complex or "
                    "integer of " +
                        std::to_string(element.dtype.size) + " bytes)")
        .hint("convert them with numpy's astype, or read them as opaque bytes: dtype V" +
              std::to_string(element.dtype.size));
  }
  const auto size = measure(header.shape, element.dtype.size);
  if (!size || size->bytes > (std::uint64_t{1} << 63) - 1 - header.data_offset) {
    throw npy_error(source, "shape " + shape_text(header.shape) + " of " + element.dtype.name() +
                                " is more than 2^63-1 bytes")
        .hint("no file is that long; the header may be damaged");
  }
  if (size->row_bytes == 0) {
    throw npy_error(source, "shape " + shape_text(header.shape) + ": its rows hold no bytes")
        .hint("there is nothing to read");
  }
  require_size(source, header, *size);
  const DType dtype = options.dtype.value_or(element.dtype);
  return {"npy",
          dtype,
          needs_swap(dtype, element.big_endian || options.big_endian),
          storage_of(header.shape, header.fortran),
          header.shape,
          size->row_bytes,
          source.segment(header.data_offset, size->rows)};
}

}  // namespace evenkeel
