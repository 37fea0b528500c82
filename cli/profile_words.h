// What `evenkeel profile` says of a run.
#pragma once

#include <optional>
#include <string>

#include "cli/profile_options.h"
#include "evenkeel/profile.h"

namespace evenkeel::cli {

// For the terminal while it runs.
std::string live_line(const ProfileSample& sample, std::optional<std::uint64_t> budget);

// Peaks and slopes, a few lines.
std::string to_words(const ProfileRun& run, const ProfileSummary& summary);

// Why the exit code should say no; empty: it should not.
std::string failed_check(const ProfileOptions& options, const ProfileRun& run,
                         const ProfileSummary& summary);

// Which limits would end the program, and at what: a table with a title.
std::string limits_words(const ProfileSummary& summary);

}  // namespace evenkeel::cli
