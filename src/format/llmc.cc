#include "format/llmc.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kShardHeader = 1024;

struct Shard {
  std::int32_t magic, version;
  DType dtype;
  std::string_view model;
};
constexpr Shard kShards[] = {{20240520, 1, {DTypeKind::kUint, 2}, "GPT-2"},
                             {20240801, 7, {DTypeKind::kUint, 4}, "Llama-3"}};

// Files of llm.c that are not token shards.
struct Other {
  std::int32_t magic;
  std::string_view what;
};
constexpr Other kOthers[] = {{20240326, "a model checkpoint"},
                             {20240522, "an evaluation set"},
                             {20240527, "a training state"}};

template <class Known>
const Known* find(const Known* begin, const Known* end, std::int32_t magic) {
  const Known* found =
      std::find_if(begin, end, [&](const Known& known) { return known.magic == magic; });
  return found == end ? nullptr : found;
}

const Shard* find_shard(std::int32_t magic) {
  return find(std::begin(kShards), std::end(kShards), magic);
}
const Other* find_other(std::int32_t magic) {
  return find(std::begin(kOthers), std::end(kOthers), magic);
}

Error llmc_error(const Source& source, std::string problem) {
  return Error(ErrorKind::kFormat, "open", std::move(problem)).in(source.path);
}

void require_size(const Source& source, DType dtype, std::uint64_t tokens) {
  const std::uint64_t bytes = tokens * dtype.size, actual = source.identity.size;
  if (kShardHeader + bytes == actual) return;
  const std::string sum = "the header says " + with_commas(tokens) + " tokens of " + dtype.name() +
                          ": " + with_commas(kShardHeader) + " + " + with_commas(bytes) + " = " +
                          with_commas(kShardHeader + bytes) + " bytes, the file has " +
                          with_commas(actual);
  const bool cut = actual < kShardHeader + bytes;
  throw llmc_error(source, (cut ? "truncated: " : "too long: ") + sum)
      .at(std::min(actual, kShardHeader + bytes))
      .hint(cut ? "the download or copy may be incomplete" : "the token count may be damaged");
}

}  // namespace

bool is_llmc(std::string_view head) {
  if (head.size() < 4) return false;
  const auto magic = load_number<std::int32_t>(head.data());
  return find_shard(magic) || find_other(magic);
}

TokenPart read_llmc(const Source& source, std::string_view head,
                    const TokenFormatOptions& options) {
  const auto magic = load_number<std::int32_t>(head.data());
  if (const Other* other = find_other(magic)) {
    throw llmc_error(source, "this is not a token shard but " + std::string(other->what) +
                                 " of llm.c (magic " + std::to_string(magic) + ")")
        .at(0)
        .hint("token shards are the .bin files that llm.c's dev/data scripts write");
  }
  const Shard& shard = *find_shard(magic);
  if (source.identity.size < kShardHeader || head.size() < kShardHeader) {
    throw llmc_error(source, "truncated: the header alone is " + with_commas(kShardHeader) +
                                 " bytes, the file has " + with_commas(source.identity.size))
        .at(source.identity.size)
        .hint("the download or copy may be incomplete");
  }
  const auto version = load_number<std::int32_t>(head.data() + 4);
  if (version != shard.version) {
    throw llmc_error(source, "version " + std::to_string(version) + " of llm.c's " +
                                 std::string(shard.model) + " token shards is not supported")
        .at(4)
        .hint("supported: version " + std::to_string(shard.version) + "; write the shard again");
  }
  const auto tokens = load_number<std::int32_t>(head.data() + 8);
  if (tokens < 0) {
    throw llmc_error(source,
                     "negative token count: the header says " + std::to_string(tokens) + " tokens")
        .at(8)
        .hint(
            "a shard holds at most 2^31-1 tokens; the count may have overflowed when it was "
            "written");
  }
  const auto count = static_cast<std::uint64_t>(tokens);
  require_size(source, shard.dtype, count);
  require_dtype(source, options.dtype, shard.dtype);
  return {token_part("llm.c", source, shard.dtype, kShardHeader, count), std::string(shard.model)};
}

}  // namespace evenkeel
