// What is in token files: shards of a few formats, put together as one stream of tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/dtype.h"
#include "format/layout.h"

namespace evenkeel {

struct TokenFormatOptions {
  // What a file without a header holds: an integer type; default uint16. For a file that says it
  // itself, it must be the same.
  std::optional<DType> dtype = {};
};

// One file of a stream, whole, also where the stream is a slice of it.
struct TokenFileInfo {
  std::string path;
  std::string format;           // as Layout::format
  std::string note = {};        // what the format's name does not say: "GPT-2"
  std::string index_path = {};  // Megatron's or datatrove's index
  std::uint64_t data_offset = 0, tokens = 0;
};

struct TokenLayout {
  // One axis: rows are tokens, over all files in order. Its format is "llm.c", "megatron",
  // "datatrove", "npy" or "raw"; "mixed" when files differ.
  Layout layout;
  std::string detail;                           // "llm.c (GPT-2, 3 shards)"
  std::optional<std::uint64_t> documents = {};  // where every file has an index that counts them
  std::uint64_t first_token = 0;                // of the stream in the files; above 0 for a slice
  std::vector<TokenFileInfo> files = {};
};

// Reads headers and indexes. A path may name a Megatron pair by its .idx, its .bin or what both
// begin with; an index among the paths counts once with the file it belongs to. Files may differ in
// format, not in dtype or byte order. Memory does not grow with an index, time does. Throws Error
// (kFormat, kInvalid, kSystem) that says what, where, the numbers and what to do.
TokenLayout read_token_layout(const std::vector<std::string>& paths,
                              const TokenFormatOptions& options);

// Keeps tokens start .. stop-1 of the stream. Negative numbers count from its end, and without
// `stop` it goes to the end. Throws Error (kInvalid) when that is empty or outside the stream.
void keep_slice(TokenLayout& tokens, std::int64_t start, std::optional<std::int64_t> stop);

// As expand_paths, but what a Megatron pair begins with stands for the pair.
std::vector<std::string> expand_token_paths(const std::string& path_or_glob);

}  // namespace evenkeel
