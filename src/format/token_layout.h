// What is in token files: shards of several formats, joined to one stream of tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/dtype.h"
#include "format/layout.h"

namespace evenkeel {

struct TokenFormatOptions {
  // The integer type of files without a header; default uint16. It must agree with files that have
  // a header.
  std::optional<DType> dtype = {};
};

// One file of a stream. It describes the whole file, even if the stream is a slice of it.
struct TokenFileInfo {
  std::string path;
  std::string format;           // as Layout::format
  std::string note = {};        // what the format's name does not say: "GPT-2"
  std::string index_path = {};  // Megatron's or datatrove's index
  std::uint64_t data_offset = 0, tokens = 0;
};

struct TokenLayout {
  // Has one axis: rows are tokens, over all files in order. Its format is "llm.c", "megatron",
  // "datatrove", "npy" or "raw"; "mixed" when files differ.
  Layout layout;
  std::string detail;                           // "llm.c (GPT-2, 3 shards)"
  std::optional<std::uint64_t> documents = {};  // if every file has an index that counts them
  std::uint64_t first_token = 0;                // of the stream in the files; above 0 for a slice
  std::vector<TokenFileInfo> files = {};        // of a slice: those that it has tokens of
};

// Reads headers and indexes. A path may name a Megatron pair by its .idx, its .bin or their common
// prefix. If both an index and its token file are among the paths, they count once. Files may
// differ in format, but not in dtype or byte order. The memory does not depend on the size of an
// index; the time does. Throws Error (kFormat, kInvalid, kSystem).
TokenLayout read_token_layout(const std::vector<std::string>& paths,
                              const TokenFormatOptions& options);

// Reduces the stream to tokens start .. stop-1. Negative numbers count from its end; without `stop`
// the slice goes to the end. Throws Error (kInvalid) if the slice is empty or outside the stream.
void keep_slice(TokenLayout& tokens, std::int64_t start, std::optional<std::int64_t> stop);

// Like expand_paths, but the common prefix of a Megatron pair is also accepted.
std::vector<std::string> expand_token_paths(const std::string& path_or_glob);

}  // namespace evenkeel
