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

}  // namespace

std::string find_preload_library() {
  std::vector<fs::path> places;
  if (const char* given = std::getenv(kOverride); given != nullptr && *given != '\0') {
    places = {fs::absolute(given)};
  } else {
    std::error_code none;
    const fs::path folder = fs::read_symlink("/proc/self/exe", none).parent_path();
    places = {folder / kName, folder / "../lib/evenkeel" / kName,
              folder / "../" EVENKEEL_LIBRARY_FOLDER "/evenkeel" / kName};
  }
  for (const fs::path& place : places) {
    std::string path = place.lexically_normal().string();
    if (::access(path.c_str(), R_OK) != 0) continue;
    // The loader takes both for the end of a path.
    if (path.find_first_of(" :") == std::string::npos) return path;
    throw Error(ErrorKind::kInvalid, "guard", path + " has a blank or a colon in its name")
        .hint("install evenkeel elsewhere, or name a copy in " + std::string(kOverride));
  }
#ifdef EVENKEEL_GUARD_INSIDE
  const char* given = std::getenv(kOverride);
  if (given == nullptr || *given == '\0') return unpack_library(guard_library(), unpack_places());
#endif
  throw Error(ErrorKind::kInvalid, "guard",
              std::string(kName) + " is not beside the tool: " + places.front().string())
      .hint("install evenkeel whole, or name the library in " + std::string(kOverride));
}

std::vector<std::string> preload_variables(const std::string& library) {
  const auto joined = [](const char* name, const std::string& first) {
    const char* before = std::getenv(name);
    return std::string(name) + "=" + first +
           (before != nullptr && *before != '\0' ? ":" + std::string(before) : "");
  };
  // Of two options with one name the later counts: the user's own.
  return {joined("LD_PRELOAD", library), joined("ASAN_OPTIONS", "verify_asan_link_order=0")};
}

}  // namespace evenkeel::cli
