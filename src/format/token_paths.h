// Token files and the indexes that lie beside some of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace evenkeel {

struct TokenFile {
  enum class Index : std::uint8_t { kNone, kMegatron, kDatatrove };
  std::string path;             // the tokens
  Index kind = Index::kNone;    // of the index beside them
  std::string index_path = {};  // "" when there is none
};

// Each path with its index. An index or another companion (.idx, .ds.index, .ds.metadata, .ds.loss)
// is left out when its tokens are among the paths, and stands for them when they are not.
std::vector<TokenFile> pair_token_files(const std::vector<std::string>& paths);

}  // namespace evenkeel
