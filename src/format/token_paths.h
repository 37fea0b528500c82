// Finds the index files that lie beside token files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace evenkeel {

struct TokenFile {
  enum class Index : std::uint8_t { kNone, kMegatron, kDatatrove };
  std::string path;             // the tokens
  Index kind = Index::kNone;    // of the index beside them
  std::string index_path = {};  // "" if there is none
};

// Each token file with its index. A companion file among the paths (.idx, .ds.index, .ds.metadata,
// .ds.loss) is skipped if its token file is also among them; otherwise it is replaced by its token
// file.
std::vector<TokenFile> pair_token_files(const std::vector<std::string>& paths);

// The URLs among these paths, and the URLs of the index files that pair_token_files looks for.
std::vector<std::string> with_companions(const std::vector<std::string>& paths);

}  // namespace evenkeel
