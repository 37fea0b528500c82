#include "format/token_part.h"

#include "evenkeel/error.h"

namespace evenkeel {

Part token_part(std::string_view format, const Source& source, DType dtype, std::uint64_t offset,
                std::uint64_t tokens) {
  return {format,   dtype,      needs_swap(dtype, false),      Storage::kEither,
          {tokens}, dtype.size, source.segment(offset, tokens)};
}

bool is_token_dtype(DType dtype) {
  return dtype.kind == DTypeKind::kInt || dtype.kind == DTypeKind::kUint;
}

void require_told(const Source& source, std::optional<DType> told, DType stored) {
  if (!told || *told == stored) return;
  throw Error(ErrorKind::kInvalid, "open",
              "the file says " + stored.name() + ", told is " + told->name())
      .in(source.path)
      .hint("leave dtype out");
}

}  // namespace evenkeel
