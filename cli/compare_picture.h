// The memory of every engine over time, side by side on equal axes.
#pragma once

#include <string>

#include "cli/compare_run.h"
#include "evenkeel/profile.h"

namespace CLI {
class App;
}

namespace evenkeel::cli {

ProfileReport to_picture(const CompareOutcome& outcome);

// Where pictures go. Empty: none of that kind.
struct PictureOptions {
  std::string html, svg;
};
void add_picture_options(CLI::App& command, PictureOptions& options, const std::string& html_help);
// Throws Error before the work is done, when they could not be written.
void require_writable(const PictureOptions& options);
// Writes them and says on stderr where. Throws Error.
void write_pictures(const PictureOptions& options, const ProfileReport& picture);

}  // namespace evenkeel::cli
