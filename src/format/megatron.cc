#include "format/megatron.h"

#include <utility>

#include "base/checked.h"
#include "base/visible.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "format/index_numbers.h"

namespace evenkeel {
namespace {

constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9);
constexpr std::uint64_t kIndexHeader = 34;

struct Header {
  DType dtype;
  std::uint64_t sequences = 0, documents_plus_one = 0;

  // These do not overflow: require_size has compared the counts with the file's size.
  std::uint64_t length_at(std::uint64_t i) const { return kIndexHeader + 4 * i; }
  std::uint64_t pointer_at(std::uint64_t i) const { return kIndexHeader + 4 * sequences + 8 * i; }
  std::uint64_t document_at(std::uint64_t i) const { return kIndexHeader + 12 * sequences + 8 * i; }
};

Error megatron_error(const Source& source, std::string problem) {
  return Error(ErrorKind::kFormat, "open", std::move(problem)).in(source.path);
}

DType read_dtype(const Source& index, std::uint8_t code) {
  switch (code) {
    case 1:
      return {DTypeKind::kUint, 1};
    case 2:
      return {DTypeKind::kInt, 1};
    case 3:
      return {DTypeKind::kInt, 2};
    case 4:
      return {DTypeKind::kInt, 4};
    case 5:
      return {DTypeKind::kInt, 8};
    case 8:
      return {DTypeKind::kUint, 2};
    case 6:
    case 7:
      throw megatron_error(
          index, "dtype code " + std::to_string(code) + " means floats, which cannot be tokens")
          .at(17)
          .hint("open the .bin as an array of that dtype");
    default:
      throw megatron_error(index, "dtype code " + std::to_string(code) + " is not supported")
          .at(17)
          .hint(std::string(code == 9 || code == 10 ? "some forks may use 9 for uint32 and 10 for "
                                                      "uint64, others do not; "
                                                    : "") +
                "supported: 1 to 5 and 8; if you know what the .bin holds, move the .idx away and "
                "give dtype");
  }
}

Header read_header(const Source& index) {
  const std::string bytes = index.read(0, kIndexHeader);
  if (!is_megatron_index(bytes)) {
    throw megatron_error(index, "this is not a Megatron index: it does not begin with MMIDIDX")
        .at(0)
        .hint("if the .bin beside it holds bare tokens, move this file away and give dtype");
  }
  if (bytes.size() < kIndexHeader) {
    throw megatron_error(index, "truncated: the header alone is 34 bytes, the file has " +
                                    with_commas(index.identity.size))
        .at(bytes.size())
        .hint("the download or copy may be incomplete");
  }
  const auto version = load_number<std::uint64_t>(bytes.data() + 9);
  if (version != 1) {
    throw megatron_error(
        index, "version " + with_commas(version) + " of Megatron's index is not supported")
        .at(9)
        .hint("supported: version 1");
  }
  return {read_dtype(index, load_number<std::uint8_t>(bytes.data() + 17)),
          load_number<std::uint64_t>(bytes.data() + 18),
          load_number<std::uint64_t>(bytes.data() + 26)};
}

void require_size(const Source& index, const Header& header) {
  const std::uint64_t n = header.sequences, d = header.documents_plus_one;
  const std::string counts =
      with_commas(n) + " sequences and " + with_commas(d) + " document bounds";
  if (d == 0) throw megatron_error(index, counts + ": there must be at least one bound").at(26);
  const auto sequences = checked_mul(n, 12), documents = checked_mul(d, 8);
  const auto arrays = sequences && documents ? checked_add(*sequences, *documents) : std::nullopt;
  const auto bytes = arrays ? checked_add(*arrays, kIndexHeader) : std::nullopt;
  const std::uint64_t actual = index.identity.size;
  // Multimodal files have one more byte per sequence at the end, and no flag that says so.
  if (bytes && (actual == *bytes || (actual > *bytes && actual - *bytes == n))) return;
  throw megatron_error(index, counts + " need " + (bytes ? with_commas(*bytes) : "more than 2^64") +
                                  " bytes, the file has " + with_commas(actual))
      .at(18)
      .hint("the copy may be incomplete, or the counts are damaged");
}

std::string sequence_text(std::uint64_t i, std::int64_t pointer, std::int32_t length) {
  return "sequence " + with_commas(i) + ", " + std::to_string(length) + " tokens at byte " +
         std::to_string(pointer) + " of the .bin,";
}

// Checks `count` sequences, beginning with `first`. The sequences checked before end at byte `end`
// of the .bin. Returns where these end.
std::uint64_t check_sequences(const Source& index, const Header& header, const Source& bin,
                              std::uint64_t first, std::uint64_t count, std::uint64_t end) {
  const std::uint64_t bin_bytes = bin.identity.size;
  IndexNumbers<std::int32_t> lengths(index, header.length_at(first));
  IndexNumbers<std::int64_t> pointers(index, header.pointer_at(first));
  for (std::uint64_t i = first; i < first + count; ++i) {
    const std::int32_t length = lengths.next();
    const std::int64_t pointer = pointers.next();
    if (length < 0) {
      throw megatron_error(index, sequence_text(i, pointer, length) + " has a negative length")
          .at(header.length_at(i));
    }
    const std::uint64_t begin = static_cast<std::uint64_t>(pointer);
    const std::uint64_t bytes = static_cast<std::uint64_t>(length) * header.dtype.size;
    if (pointer < 0 || begin > bin_bytes || bytes > bin_bytes - begin) {
      throw megatron_error(index, sequence_text(i, pointer, length) +
                                      " lies outside it: the .bin has " + with_commas(bin_bytes) +
                                      " bytes")
          .at(header.pointer_at(i))
          .hint("the .bin may be incomplete or belong to another .idx");
    }
    // The sequences before a sample were skipped, so its first one may begin anywhere after `end`.
    if (i == first && first > 0 ? begin < end : begin != end) {
      throw megatron_error(index, sequence_text(i, pointer, length) +
                                      " does not begin where the previous one ends, at byte " +
                                      std::to_string(end) + ": the tokens are not one stream")
          .at(header.pointer_at(i))
          .hint("write the pair again, with sequences in order and without gaps");
    }
    end = begin + bytes;
  }
  return end;
}

void check_sequences(const Source& index, const Header& header, const Source& bin) {
  std::uint64_t end = 0;  // where the sequences so far end in the .bin
  for_each_checked(header.sequences, [&](std::uint64_t first, std::uint64_t count) {
    end = check_sequences(index, header, bin, first, count, end);
  });
  const std::uint64_t bin_bytes = bin.identity.size;
  if (end == bin_bytes) return;
  throw megatron_error(bin, "the sequences of " + visible(index.path) + " end at byte " +
                                with_commas(end) + ", the file has " + with_commas(bin_bytes))
      .at(end)
      .hint("the .idx may be older than the .bin or belong to another one");
}

void check_documents(const Source& index, const Header& header) {
  const auto sequences = static_cast<std::int64_t>(header.sequences);
  std::int64_t last = 0;
  for_each_checked(header.documents_plus_one, [&](std::uint64_t first, std::uint64_t count) {
    IndexNumbers<std::int64_t> bounds(index, header.document_at(first));
    for (std::uint64_t i = first; i < first + count; ++i) {
      const std::int64_t bound = bounds.next();
      const bool is_last = i + 1 == header.documents_plus_one;
      const char* wrong = i == 0 && bound != 0 ? "the first must be 0"
                          : bound < last       ? "it is lower than the previous one"
                          : is_last && bound != sequences
                              ? "the last must be the number of sequences"
                              : nullptr;
      if (wrong) {
        throw megatron_error(index, "document bound " + with_commas(i) + " is " +
                                        std::to_string(bound) + " of " +
                                        with_commas(header.sequences) + " sequences: " + wrong)
            .at(header.document_at(i))
            .hint("the index is damaged; write it again");
      }
      last = bound;
    }
  });
}
}  // namespace

bool is_megatron_index(std::string_view head) { return head.starts_with(kIndexMagic); }

TokenPart read_megatron(const Source& index, const std::string& bin_path,
                        const TokenFormatOptions& options) {
  const Header header = read_header(index);
  require_size(index, header);
  const Source bin = open_even_empty(bin_path);
  require_dtype(index, options.dtype, header.dtype);
  check_sequences(index, header, bin);
  check_documents(index, header);
  return {token_part("megatron", bin, header.dtype, 0, bin.identity.size / header.dtype.size),
          {},
          header.documents_plus_one - 1};
}

MegatronLengths::MegatronLengths(const std::string& index_path) : source_(open_source(index_path)) {
  const Header header = read_header(source_);
  require_size(source_, header);
  sequences_ = header.sequences;
  rewind(0);
}

void MegatronLengths::rewind(std::uint64_t sequence) {
  numbers_.emplace(source_, Header{}.length_at(sequence));
}

std::uint32_t MegatronLengths::next() {
  const std::int32_t length = numbers_->next();
  if (length >= 0) return static_cast<std::uint32_t>(length);
  throw megatron_error(source_, "a sequence has a negative length, " + std::to_string(length));
}

}  // namespace evenkeel
