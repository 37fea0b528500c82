#include "format/token_layout.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/visible.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "format/datatrove.h"
#include "format/llmc.h"
#include "format/megatron.h"
#include "format/npy.h"
#include "format/token_part.h"
#include "format/token_paths.h"
#include "format/unknown.h"

namespace evenkeel {
namespace {

TokenPart read_npy_tokens(const Source& source, std::string_view head,
                          const TokenFormatOptions& options) {
  const NpyHeader header = read_npy_header(source, head);
  const DType dtype = header.element.dtype;
  if (header.shape.size() != 1 || !is_token_dtype(dtype)) {
    throw Error(ErrorKind::kFormat, "open",
                "the NPY header says " + dtype.name() + " of shape " + shape_text(header.shape) +
                    "; tokens are integers along one axis")
        .in(source.path)
        .hint("save them again, flat (numpy's reshape(-1)) and as integers");
  }
  require_dtype(source, options.dtype, dtype);
  return {npy_part(source, header, {})};
}

TokenPart read_raw_tokens(const Source& source, const TokenFormatOptions& options) {
  const DType dtype = options.dtype.value_or(DType{DTypeKind::kUint, 2});
  const std::uint64_t bytes = source.identity.size, odd = bytes % dtype.size;
  const std::string assumed = options.dtype ? "" : dtype.name() + " assumed";
  if (odd != 0) {
    throw Error(ErrorKind::kFormat, "open",
                with_commas(bytes) + " bytes are not whole tokens of " + dtype.name() + ": " +
                    with_commas(bytes / dtype.size) + " of " + std::to_string(dtype.size) +
                    " bytes, and " + std::to_string(odd) + " left over")
        .in(source.path)
        .at(bytes - odd)
        .hint("the dtype may be another one, or the file is truncated");
  }
  return {token_part("raw", source, dtype, 0, bytes / dtype.size), assumed};
}

TokenPart read_by_magic(const std::string& path, const TokenFormatOptions& options) {
  const Source source = open_source(path);
  const std::string head = source.read(0, kHeadBytes);
  if (is_npy(head)) return read_npy_tokens(source, head, options);
  if (is_llmc(head)) return read_llmc(source, head, options);
  if (is_megatron_index(head)) {
    throw Error(ErrorKind::kFormat, "open", "this is a Megatron index with another name")
        .in(path)
        .hint("name it NAME.idx and put it beside NAME.bin, which holds its tokens");
  }
  if (!options.dtype) refuse_foreign_format(source, head);
  return read_raw_tokens(source, options);
}

bool has_own_header(const std::string& path) {
  const std::string head = open_even_empty(path).read(0, kHeadBytes);
  return is_npy(head) || is_llmc(head);
}

TokenPart read_token_part(const TokenFile& file, const TokenFormatOptions& options) {
  if (file.kind == TokenFile::Index::kDatatrove) {
    return read_datatrove(file.path, file.index_path, options);
  }
  if (file.kind == TokenFile::Index::kMegatron) {
    const Source index = open_even_empty(file.index_path);
    // If the .bin has its own header, an .idx that is not Megatron's is ignored.
    if (is_megatron_index(index.read(0, kHeadBytes)) || !has_own_header(file.path)) {
      return read_megatron(index, file.path, options);
    }
  }
  return read_by_magic(file.path, options);
}

std::string in_words(const TokenPart& tokens) {
  return std::string(tokens.part.format) + (tokens.note.empty() ? "" : ", " + tokens.note);
}

void require_agreement(const TokenPart& first, const TokenPart& other) {
  const Part &a = first.part, &b = other.part;
  std::string wanted, found;
  if (a.dtype != b.dtype) {
    wanted = a.dtype.name(), found = b.dtype.name();
  } else if (a.swapped != b.swapped) {
    wanted = byte_order(a.swapped), found = byte_order(b.swapped);
  } else {
    return;
  }
  throw Error(ErrorKind::kFormat, "open",
              "has " + found + " (" + in_words(other) + "), but " + visible(a.segment.path) +
                  " has " + wanted + " (" + in_words(first) + ")")
      .in(b.segment.path)
      .hint(
          "files of one stream must agree in dtype and byte order; a file without a header is "
          "uint16 unless dtype is given");
}

// Counts the files of each format.
class Census {
 public:
  void add(const TokenPart& tokens) {
    const auto same = [&](const Group& group) {
      return group.format == tokens.part.format && group.note == tokens.note;
    };
    auto group = std::find_if(groups_.begin(), groups_.end(), same);
    if (group == groups_.end()) {
      group = groups_.insert(group, {std::string(tokens.part.format), tokens.note});
    }
    ++group->files;
  }
  std::string format() const { return groups_.size() == 1 ? groups_[0].format : "mixed"; }
  std::string detail() const {
    std::string text;
    for (const Group& group : groups_) {
      std::string more = group.note;
      if (group.files > 1 || groups_.size() > 1) {
        more += (more.empty() ? "" : ", ") + with_commas(group.files) +
                (group.files == 1 ? " shard" : " shards");
      }
      text += (text.empty() ? "" : " + ") + group.format + (more.empty() ? "" : " (" + more + ")");
    }
    return text;
  }

 private:
  struct Group {
    std::string format, note;
    std::uint64_t files = 0;
  };
  std::vector<Group> groups_;
};

void require_integer(DType dtype) {
  if (is_token_dtype(dtype)) return;
  throw Error(ErrorKind::kInvalid, "open",
              "tokens are integers; dtype " + dtype.name() + " was given")
      .hint("int8 to int64, or uint8 to uint64; nearly always uint16 or uint32");
}

}  // namespace

TokenLayout read_token_layout(const std::vector<std::string>& paths,
                              const TokenFormatOptions& options) {
  if (paths.empty()) throw Error(ErrorKind::kInvalid, "open", "no files were given");
  if (options.dtype) require_integer(*options.dtype);
  TokenLayout result{.layout = {}, .detail = {}, .documents = 0};
  std::optional<TokenPart> first;
  Census census;
  for (const TokenFile& file : pair_token_files(paths)) {
    TokenPart tokens = read_token_part(file, options);
    if (first && !tokens.any_dtype) require_agreement(*first, tokens);
    if (!first && !tokens.any_dtype) first = tokens;
    census.add(tokens);
    if (!tokens.documents) result.documents.reset();
    if (result.documents) *result.documents += *tokens.documents;
    result.files.push_back({file.path, std::string(tokens.part.format), tokens.note,
                            tokens.documents ? file.index_path : "",
                            tokens.part.segment.data_offset, tokens.part.segment.rows});
    append(result.layout, std::move(tokens.part));
  }
  Layout& layout = result.layout;
  if (layout.rows == 0) {
    throw Error(ErrorKind::kFormat, "open",
                "there are no tokens in " + with_commas(layout.paths.size()) +
                    (layout.paths.size() == 1 ? " file" : " files"))
        .in(layout.paths[0])
        .hint("the files may not have been written yet");
  }
  layout.format = census.format();
  layout.dtype = first->part.dtype;
  layout.swapped = first->part.swapped;
  layout.shape = {layout.rows};
  layout.row_bytes = layout.dtype.size;
  result.detail = census.detail();
  return result;
}

void keep_slice(TokenLayout& tokens, std::int64_t start, std::optional<std::int64_t> stop) {
  if (start == 0 && !stop) return;
  Layout& layout = tokens.layout;
  const auto rows = static_cast<std::int64_t>(layout.rows);
  const std::int64_t first = start < 0 ? start + rows : start;
  const std::int64_t end = !stop ? rows : *stop < 0 ? *stop + rows : *stop;
  if (first < 0 || first >= end || end > rows) {
    throw Error(ErrorKind::kInvalid, "open",
                "tokens " + std::to_string(start) + " to " +
                    (stop ? std::to_string(*stop) : "the end") + " of a stream of " +
                    with_commas(layout.rows) + " tokens: " +
                    (first >= 0 && first >= end && end >= 0 && end <= rows ? "the slice is empty"
                                                                           : "out of range"))
        .in(layout.paths.front());
  }
  const auto kept_first = static_cast<std::uint64_t>(first);
  const auto kept_end = static_cast<std::uint64_t>(end);
  if (kept_first == 0 && kept_end == layout.rows) return;
  std::vector<Segment> kept;
  for (Segment& segment : layout.segments) {
    const std::uint64_t from = std::max(segment.first_row, kept_first);
    const std::uint64_t to = std::min(segment.first_row + segment.rows, kept_end);
    if (from >= to) continue;
    segment.data_offset += (from - segment.first_row) * layout.row_bytes;
    segment.first_row = from - kept_first;
    segment.rows = to - from;
    kept.push_back(std::move(segment));
  }
  layout.segments = std::move(kept);
  // Other files need no index of documents.
  std::unordered_set<std::string_view> paths;
  for (const Segment& segment : layout.segments) paths.insert(segment.path);
  std::erase_if(tokens.files,
                [&](const TokenFileInfo& file) { return !paths.contains(file.path); });
  layout.rows = kept_end - kept_first;
  layout.shape = {layout.rows};
  tokens.documents.reset();
  tokens.first_token += kept_first;
}

}  // namespace evenkeel
