// Files that a profile is written to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evenkeel/profile.h"

namespace evenkeel::cli {

struct ProfileOutputs {
  std::string html, json, svg;  // empty: none
  std::vector<std::string> paths() const;
};

ProfileReport report_of(ProfileRun run, const ProfileSummary& summary,
                        std::optional<std::uint64_t> budget);

struct Written {
  bool all = true;
  std::string words;  // a line for each: where it is, or why it is not
};

// Goes on where one cannot be written: the others may still be.
Written write_all(const ProfileOutputs& outputs, const ProfileReport& report);

}  // namespace evenkeel::cli
