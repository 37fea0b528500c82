#include "format/token_paths.h"

#include <cerrno>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/sys.h"
#include "evenkeel/error.h"
#include "format/token_layout.h"
#include "remote/opening.h"

namespace evenkeel {
namespace {

struct Companion {
  std::string_view suffix, tokens_suffix;
};

constexpr Companion kCompanions[] = {
    {".idx", ".bin"}, {".ds.index", ".ds"}, {".ds.metadata", ".ds"}, {".ds.loss", ".ds"}};

// Looks for a file. A dangling link counts as a file: opening it fails, which is better than
// ignoring it. Throws if the system cannot say whether a file exists, because tokens that are read
// without their index may be wrong.
enum class Found : std::uint8_t { kNothing, kFolder, kFile };

Found look_for(const std::string& path) {
  struct stat status;
  if (path.find('\0') != path.npos) return Found::kNothing;
  if (is_url(path)) return object_exists(path) ? Found::kFile : Found::kNothing;
  if (sys::lstat(path.c_str(), &status) == 0) {
    return S_ISDIR(status.st_mode) ? Found::kFolder : Found::kFile;
  }
  const int code = errno;
  if (code == ENOENT || code == ENOTDIR || code == ENAMETOOLONG || code == EACCES) {
    return Found::kNothing;
  }
  throw Error::system("open", code, "cannot determine whether the file exists").in(path);
}

bool is_there(const std::string& path) { return look_for(path) != Found::kNothing; }

// For a URL, the part before the query counts.
bool ends_so(const std::string& path, std::string_view suffix) {
  return is_url(path) ? path_ends_with(path, suffix) : path.ends_with(suffix);
}

std::string with_suffix(const std::string& path, std::string_view old, std::string_view suffix) {
  if (is_url(path)) return with_ending(path, old, suffix);
  return path.substr(0, path.size() - old.size()).append(suffix);
}

// The token file that this file belongs to, if this is an existing companion file.
std::optional<std::string> tokens_of(const std::string& path) {
  for (const Companion& known : kCompanions) {
    if (ends_so(path, known.suffix) && is_there(path)) {
      return with_suffix(path, known.suffix, known.tokens_suffix);
    }
  }
  return std::nullopt;
}

// "train.bin" of "train.bin.bos50256".
std::string_view without_separator(std::string_view name) {
  const std::size_t end = name.find_last_not_of("0123456789");
  if (end == name.npos || end + 1 == name.size()) return name;
  std::string_view rest = name.substr(0, end + 1);
  if (rest.ends_with('-')) rest.remove_suffix(1);
  if (!rest.ends_with(".bos") && !rest.ends_with(".eos")) return name;
  return rest.substr(0, rest.size() - 4);
}

// The same for document indexes that lie beside any token file: NAME.bos50256.documents, which
// Evenkeel makes, and NAME.doc.npy, where NAME may be without its .bin or .npy.
std::optional<std::string> tokens_of_documents(const std::string& path) {
  for (const std::string_view suffix : {".documents", ".documents.part", ".doc.npy"}) {
    if (!ends_so(path, suffix) || !is_there(path)) continue;
    const std::string name(without_separator(with_suffix(path, suffix, "")));
    for (const std::string_view extension : {"", ".bin", ".npy"}) {
      std::string tokens = name + std::string(extension);
      if (look_for(tokens) == Found::kFile) return tokens;
    }
  }
  return std::nullopt;
}

// Whether this is the common prefix of a Megatron pair: "corpus" for corpus.bin and corpus.idx. A
// folder with the same name is ignored, because a folder holds no tokens.
bool is_prefix(const std::string& path) {
  // Each look at a server costs a request, so a URL with an extension is not treated as a prefix.
  if (is_url(path) && object_name(path).find('.') != std::string::npos) return false;
  return look_for(path) != Found::kFile && is_there(path + ".idx");
}

TokenFile with_index(std::string path) {
  if (ends_so(path, ".bin")) {
    std::string index = with_suffix(path, ".bin", ".idx");
    if (is_there(index)) return {std::move(path), TokenFile::Index::kMegatron, std::move(index)};
  } else if (ends_so(path, ".ds")) {
    std::string index = with_suffix(path, "", ".index");
    if (is_there(index)) return {std::move(path), TokenFile::Index::kDatatrove, std::move(index)};
  }
  return {std::move(path)};
}

}  // namespace

std::vector<std::string> with_companions(const std::vector<std::string>& paths) {
  std::vector<std::string> all;
  for (const std::string& path : paths) {
    if (!is_url(path)) continue;
    all.push_back(path);
    if (ends_so(path, ".bin")) all.push_back(with_suffix(path, ".bin", ".idx"));
    if (ends_so(path, ".ds")) all.push_back(with_suffix(path, "", ".index"));
  }
  return all;
}

std::vector<TokenFile> pair_token_files(const std::vector<std::string>& paths) {
  const std::unordered_set<std::string> given(paths.begin(), paths.end());
  std::unordered_set<std::string>
      named;  // token files named by companions; two companions may name the same one
  std::vector<TokenFile> files;
  for (const std::string& path : paths) {
    auto tokens = tokens_of(path);
    if (!tokens) tokens = tokens_of_documents(path);
    if (tokens) {
      if (given.contains(*tokens) || !named.insert(*tokens).second) continue;
      files.push_back(with_index(std::move(*tokens)));
    } else {
      files.push_back(with_index(is_prefix(path) ? path + ".bin" : path));
    }
  }
  return files;
}

std::vector<std::string> expand_token_paths(const std::string& path_or_glob) {
  if (is_prefix(path_or_glob)) return {path_or_glob};
  return expand_paths(path_or_glob);
}

}  // namespace evenkeel
