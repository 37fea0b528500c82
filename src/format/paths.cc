#include <glob.h>

#include <algorithm>
#include <cerrno>

#include "base/sys.h"
#include "evenkeel/error.h"
#include "format/layout.h"

namespace evenkeel {
namespace {

struct Matches {
  glob_t found = {};
  ~Matches() { ::globfree(&found); }
};

}  // namespace

std::vector<std::string> expand_paths(const std::string& path_or_glob) {
  struct stat status;
  if (path_or_glob.find('\0') != path_or_glob.npos) {
    throw Error(ErrorKind::kInvalid, "open", "a path cannot hold a zero byte")
        .in(path_or_glob.c_str());
  }
  if (sys::lstat(path_or_glob.c_str(), &status) == 0) return {path_or_glob};
  const int code = errno;
  if (path_or_glob.find_first_of("*?[") == path_or_glob.npos) {
    throw Error::system("open", code)
        .in(path_or_glob)
        .hint("check the spelling and the working directory");
  }
  Matches matches;
  // glob(3) sorts as the locale does; shards must come in the same order everywhere.
  const int result = ::glob(path_or_glob.c_str(), GLOB_NOSORT, nullptr, &matches.found);
  if (result == GLOB_NOSPACE) throw Error::system("open", ENOMEM).in(path_or_glob);
  if (result != 0 || matches.found.gl_pathc == 0) {
    throw Error::system("open", ENOENT, "no file matches the pattern")
        .in(path_or_glob)
        .hint("check the spelling and the working directory; * does not cross folders");
  }
  std::vector<std::string> paths(matches.found.gl_pathv,
                                 matches.found.gl_pathv + matches.found.gl_pathc);
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace evenkeel
