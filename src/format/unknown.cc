#include "format/unknown.h"

#include <algorithm>
#include <string>

namespace evenkeel {
namespace {

struct ForeignFormat {
  std::string_view magic, name, advice;
};

constexpr ForeignFormat kForeignFormats[] = {
    {"PK\x03\x04", "a ZIP archive, such as .npz", "unpack it and open the .npy files in it"},
    {"\x89HDF\r\n", "HDF5", "from Python: evenkeel.open(path, name=\"dataset\"), which needs h5py"},
    {"PAR1", "Parquet, whose pages are encoded and have no fixed places",
     "convert it once: pyarrow.feather.write_feather(pyarrow.parquet.read_table(path), "
     "\"out.arrow\", compression=\"uncompressed\")"},
    {"FEA1", "Feather version 1", "write it again with pyarrow.feather, version 2, uncompressed"},
    {"\x1f\x8b\x08", "gzip data", "decompress it first"},
    {"\x28\xb5\x2f\xfd", "zstd data", "decompress it first"},
    {"version https://git-lfs", "a Git LFS pointer, not the data", "fetch the data: git lfs pull"},
};

std::string hex(std::string_view bytes) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (!text.empty()) text += ' ';
    text += {kHex[byte >> 4], kHex[byte & 15]};
  }
  return text;
}

const ForeignFormat* find_foreign_format(std::string_view head) {
  const auto found =
      std::find_if(std::begin(kForeignFormats), std::end(kForeignFormats),
                   [&](const ForeignFormat& known) { return head.starts_with(known.magic); });
  return found == std::end(kForeignFormats) ? nullptr : found;
}

}  // namespace

Error unknown_format(const Source& source, std::string_view head) {
  std::string problem = "not a known format: the file begins with " + hex(head.substr(0, 8)) +
                        "; known: NPY, Arrow, npz, FITS, NIfTI";
  std::string hint = "for raw numbers, give dtype (and shape, offset)";
  if (const ForeignFormat* foreign = find_foreign_format(head)) {
    problem += "; this looks like " + std::string(foreign->name);
    hint = std::string(foreign->advice) + "; or " + hint;
  } else if (source.path.ends_with(".npy")) {
    problem += "; despite its name it has no NPY header";
    hint += "; token files named .npy are often raw uint16 or uint32";
  }
  return Error(ErrorKind::kFormat, "open", problem).in(source.path).at(0).hint(hint);
}

void refuse_foreign_format(const Source& source, std::string_view head) {
  const ForeignFormat* foreign = find_foreign_format(head);
  if (!foreign) return;
  throw Error(ErrorKind::kFormat, "open",
              "this looks like " + std::string(foreign->name) + ", not tokens: it begins with " +
                  hex(head.substr(0, 8)))
      .in(source.path)
      .at(0)
      .hint(std::string(foreign->advice) + "; if these are tokens after all, give dtype");
}

}  // namespace evenkeel
