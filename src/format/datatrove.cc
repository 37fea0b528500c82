#include "format/datatrove.h"

#include <utility>

#include "base/checked.h"
#include "base/visible.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "format/index_numbers.h"

namespace evenkeel {
namespace {

constexpr DType kU16{DTypeKind::kUint, 2}, kU32{DTypeKind::kUint, 4};

Error datatrove_error(const Source& source, std::string problem) {
  return Error(ErrorKind::kFormat, "open", std::move(problem)).in(source.path);
}

// Where the last document ends, in tokens. Checks that documents end in order; see
// for_each_checked.
std::uint64_t last_end(const Source& index) {
  const std::uint64_t bytes = index.identity.size;
  if (bytes % 8 != 0) {
    throw datatrove_error(index, with_commas(bytes) + " bytes is not a multiple of 8: " +
                                     with_commas(bytes % 8) + " left over")
        .at(round_down(bytes, 8))
        .hint("the download or copy may be incomplete");
  }
  std::uint64_t last = 0;
  for_each_checked(bytes / 8, [&](std::uint64_t first, std::uint64_t count) {
    IndexNumbers<std::uint64_t> ends(index, 8 * first);
    for (std::uint64_t i = first; i < first + count; ++i) {
      const std::uint64_t end = ends.next();
      if (end < last) {
        throw datatrove_error(index,
                              "document " + with_commas(i) + " ends at token " + with_commas(end) +
                                  ", before the previous one, which ends at " + with_commas(last))
            .at(8 * i)
            .hint("the index is damaged; write it again");
      }
      last = end;
    }
  });
  return last;
}

}  // namespace

TokenPart read_datatrove(const std::string& path, const std::string& index_path,
                         const TokenFormatOptions& options) {
  const Source source = open_even_empty(path), index = open_even_empty(index_path);
  const std::uint64_t tokens = last_end(index), documents = index.identity.size / 8;
  const std::uint64_t bytes = source.identity.size;
  if (tokens == 0 && bytes == 0) {
    return {
        token_part("datatrove", source, options.dtype.value_or(kU16), 0, 0), {}, documents, true};
  }
  for (const DType dtype : {kU16, kU32}) {
    if (checked_mul(tokens, dtype.size) != bytes) continue;
    require_dtype(source, options.dtype, dtype);
    return {token_part("datatrove", source, dtype, 0, tokens), {}, documents};
  }
  throw datatrove_error(source, "the file has " + with_commas(bytes) + " bytes, but " +
                                    visible(index.path) + " ends at token " + with_commas(tokens) +
                                    ", which fits neither uint16 nor uint32")
      .hint("the copy may be incomplete, or the index belongs to another file");
}

}  // namespace evenkeel
