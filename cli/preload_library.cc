#include "cli/preload_library.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

namespace fs = std::filesystem;
constexpr char kName[] = "libevenkeel_guard.so";
constexpr char kOverride[] = "EVENKEEL_GUARD_LIBRARY";

}  // namespace

std::string find_preload_library() {
  std::vector<fs::path> places;
  if (const char* told = std::getenv(kOverride); told != nullptr && *told != '\0') {
    places = {fs::absolute(told)};
  } else {
    std::error_code none;
    const fs::path folder = fs::read_symlink("/proc/self/exe", none).parent_path();
    places = {folder / kName, folder / "../lib/evenkeel" / kName,
              folder / "../" EVENKEEL_LIBRARY_FOLDER "/evenkeel" / kName};
  }
  for (const fs::path& place : places) {
    std::string path = place.lexically_normal().string();
    if (::access(path.c_str(), R_OK) != 0) continue;
    // The loader takes both for the end of a name.
    if (path.find_first_of(" :") == std::string::npos) return path;
    throw Error(ErrorKind::kInvalid, "guard", path + " has a blank or a colon in its name")
        .hint("install evenkeel elsewhere, or name a copy in " + std::string(kOverride));
  }
  throw Error(ErrorKind::kInvalid, "guard",
              std::string(kName) + " is not beside the tool: " + places.front().string())
      .hint("install evenkeel whole, or name the library in " + std::string(kOverride));
}

std::string preload_variable(const std::string& library) {
  const char* before = std::getenv("LD_PRELOAD");
  return "LD_PRELOAD=" + library +
         (before != nullptr && *before != '\0' ? ":" + std::string(before) : "");
}

}  // namespace evenkeel::cli
