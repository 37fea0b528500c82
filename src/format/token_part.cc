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

void require_dtype(const Source& source, std::optional<DType> given, DType stored) {
  if (!given || *given == stored) return;
  throw Error(ErrorKind::kInvalid, "open",
              "the file says " + stored.name() + ", but dtype " + given->name() + " was given")
      .in(source.path)
      .hint("leave dtype out");
}

}  // namespace evenkeel
