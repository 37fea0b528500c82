#include "cli/preload_library.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "cli/unpack_library.h"
#include "evenkeel/error.h"

#ifdef EVENKEEL_GUARD_INSIDE
namespace evenkeel {
std::string_view guard_library();  // its bytes: cmake/embed.cmake
}
#endif

namespace evenkeel::cli {
namespace {

namespace fs = std::filesystem;
constexpr char kName[] = "libevenkeel_guard.so";
constexpr char kOverride[] = "EVENKEEL_GUARD_LIBRARY";

std::string checked(const fs::path& place) {
  std::string path = place.lexically_normal().string();
  if (can_be_preloaded(path)) return path;
  throw Error(ErrorKind::kInvalid, "guard",
              path + " has a space, a colon or a dollar sign in its name")
      .hint("install evenkeel elsewhere, or set " + std::string(kOverride) +
            " to a copy of the library");
}

bool readable(const fs::path& place) { return ::access(place.c_str(), R_OK) == 0; }

}  // namespace

std::string find_preload_library(const PreloadSearch& search) {
  if (!search.given.empty()) {
    const fs::path given = fs::absolute(search.given);
    if (readable(given)) return checked(given);
    throw Error(ErrorKind::kInvalid, "guard", given.string() + " cannot be read")
        .hint("correct " + std::string(kOverride) + ", or unset it");
  }
  if (!search.inside.empty()) return unpack_library(search.inside, search.places);
  const fs::path folder = search.tool_folder;
  for (const fs::path& place : {folder / kName, folder / "../lib/evenkeel" / kName,
                                folder / "../" EVENKEEL_LIBRARY_FOLDER "/evenkeel" / kName}) {
    if (readable(place)) return checked(place);
  }
  throw Error(ErrorKind::kInvalid, "guard",
              std::string(kName) + " is not beside the tool: " + (folder / kName).string())
      .hint("reinstall Evenkeel, or set " + std::string(kOverride) + " to the path of the library");
}

std::string find_preload_library() {
  PreloadSearch search;
  if (const char* given = std::getenv(kOverride)) search.given = given;
  std::error_code none;
  search.tool_folder = fs::read_symlink("/proc/self/exe", none).parent_path().string();
#ifdef EVENKEEL_GUARD_INSIDE
  search.inside = guard_library();
  search.places = unpack_places();
#endif
  return find_preload_library(search);
}

std::vector<std::string> preload_variables(const std::string& library) {
  const auto joined = [](const char* name, const std::string& first) {
    const char* before = std::getenv(name);
    return std::string(name) + "=" + first +
           (before != nullptr && *before != '\0' ? ":" + std::string(before) : "");
  };
  // If an option occurs twice, the later one counts: the user's own.
  return {joined("LD_PRELOAD", library), joined("ASAN_OPTIONS", "verify_asan_link_order=0")};
}

}  // namespace evenkeel::cli
