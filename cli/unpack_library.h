// The guard's library as a file, for a tool that carries it inside (scripts/wheels --tool).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::cli {

// A folder to unpack into: `path` is made with mode 0700 if it is missing. What lies above it must
// be there already, unless `make_parent` is set.
struct UnpackPlace {
  std::string path;
  bool make_parent = false;
};

// $XDG_CACHE_HOME/evenkeel or ~/.cache/evenkeel, then $XDG_RUNTIME_DIR/evenkeel, then
// $TMPDIR/evenkeel-UID or /tmp/evenkeel-UID.
std::vector<UnpackPlace> unpack_places();

// Whether LD_PRELOAD can name this path. The loader takes a space and a colon for its end, and
// replaces words such as $ORIGIN.
bool can_be_preloaded(const std::string& path);

// The path, without links, of a file with these bytes in the first place that is safe:
// - The folder is no symbolic link, belongs to this user, and no other user can write to it.
// - Every folder above it, up to /, belongs to this user or to root, and others cannot write to it
//   unless it is sticky. Links in the path of the folder above are resolved first. So only this
//   user and root can put another file at the path that is returned.
// - The filesystem is not mounted noexec, and LD_PRELOAD can name the path.
// Nothing is made before every folder above is checked. A file that is there already is used if all
// its bytes are right, and replaced if not. Throws Error that says why each place was rejected.
std::string unpack_library(std::string_view bytes, const std::vector<UnpackPlace>& places);

}  // namespace evenkeel::cli
