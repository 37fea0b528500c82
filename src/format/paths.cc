#include <glob.h>

#include <algorithm>
#include <cerrno>

#include "base/sys.h"
#include "evenkeel/error.h"
#include "format/layout.h"
#include "remote/address.h"
#include "remote/listing.h"

namespace evenkeel {
namespace {

// glob(3) that reports errors. If glob itself cannot read a folder, or not to its end, it ignores
// the rest, so shards would be missing silently. Folders that this user may not read are skipped,
// as in shells.
class Matches {
 public:
  explicit Matches(const std::string& pattern) {
#ifdef GLOB_ALTDIRFUNC
    found_.gl_opendir = [](const char* path) -> void* {
      DIR* folder = sys::opendir(path);
      if (!folder) note(errno);
      return folder;
    };
    found_.gl_readdir = [](void* folder) -> dirent* {
      dirent* entry = sys::readdir(static_cast<DIR*>(folder));
      if (!entry) note(errno);
      return entry;
    };
    found_.gl_closedir = [](void* folder) { ::closedir(static_cast<DIR*>(folder)); };
    found_.gl_stat = [](const char* path, struct stat* out) { return ::stat(path, out); };
    found_.gl_lstat = [](const char* path, struct stat* out) {
      const int result = sys::lstat(path, out);
      if (result != 0) note(errno);
      return result;
    };
    failure_ = 0;
    // glob would sort by locale; shards must come in the same order everywhere (see sorted()).
    const int result = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_ALTDIRFUNC, nullptr, &found_);
#else  // musl's glob takes no functions, and reports what opendir and readdir say
    failure_ = 0;
    const auto report = [](const char*, int code) {
      note(code);
      return 0;
    };
    const int result = ::glob(pattern.c_str(), GLOB_NOSORT, report, &found_);
#endif
    if (result == GLOB_NOSPACE) failure_ = ENOMEM;
  }
  ~Matches() { ::globfree(&found_); }
  Matches(const Matches&) = delete;
  Matches& operator=(const Matches&) = delete;

  int failure() const { return failure_; }  // an errno, or 0
  std::vector<std::string> sorted() const {
    std::vector<std::string> paths(found_.gl_pathv, found_.gl_pathv + found_.gl_pathc);
    std::sort(paths.begin(), paths.end());
    return paths;
  }

 private:
  // Remembers an errno, except those that mean "no such file" or "not permitted".
  static void note(int code) {
    const bool not_there = code == ENOENT || code == ENOTDIR || code == ENAMETOOLONG;
    if (code != 0 && code != EACCES && !not_there) failure_ = code;
  }
  static thread_local int failure_;  // static because glob's callbacks get no context
  glob_t found_ = {};
};

thread_local int Matches::failure_ = 0;

}  // namespace

std::vector<std::string> expand_paths(const std::string& path_or_glob) {
  struct stat status;
  if (path_or_glob.find('\0') != path_or_glob.npos) {
    throw Error(ErrorKind::kInvalid, "open", "a path cannot contain a zero byte")
        .in(path_or_glob.c_str());
  }
  if (is_url(path_or_glob)) return expand_url(path_or_glob);
  if (sys::lstat(path_or_glob.c_str(), &status) == 0) return {path_or_glob};
  const int code = errno;
  if (path_or_glob.find_first_of("*?[") == path_or_glob.npos) {
    throw Error::system("open", code)
        .in(path_or_glob)
        .hint("check the spelling and the working directory");
  }
  const Matches matches(path_or_glob);
  if (matches.failure() != 0) {
    throw Error::system("open", matches.failure(), "cannot list all files that match")
        .in(path_or_glob);
  }
  std::vector<std::string> paths = matches.sorted();
  if (paths.empty()) {
    throw Error::system("open", ENOENT, "no file matches the pattern")
        .in(path_or_glob)
        .hint("check the spelling and the working directory; * does not cross folders");
  }
  return paths;
}

}  // namespace evenkeel
