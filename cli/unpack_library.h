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

// The path of a file with these bytes in the first place that is safe: the folder is no symbolic
// link, belongs to this user and can be written by no other; the folder above it belongs to this
// user or to root, and others cannot write to it unless it is sticky; programs may be loaded from
// there; and LD_PRELOAD can name it. A file that is there already is used if all its bytes are
// right, and replaced if not. Throws Error that says what each place lacks.
std::string unpack_library(std::string_view bytes, const std::vector<UnpackPlace>& places);

}  // namespace evenkeel::cli
