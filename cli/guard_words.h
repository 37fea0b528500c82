// The messages of `evenkeel guard`.
#pragma once

#include <string>

#include "cli/program_kind.h"
#include "evenkeel/guard.h"
#include "evenkeel/profile.h"

namespace evenkeel::cli {

// Why no library can be preloaded into the program, and what to do instead; empty: it can.
std::string why_unguarded(const Program& program);

// A summary of a few lines: peak, bytes released and read, readahead switches, failures.
std::string guard_words(const GuardReport& report, std::size_t files, const ProfileRun& run,
                        const ProfileSummary& summary);

// One sentence about the budget, which covers the guarded files, and one about the rest.
std::string guard_verdict(const GuardReport& report, const ProfileSummary& summary);

// The same as facts of a profile.
void add_guard_facts(ProfileRun& run, const GuardReport& report, std::size_t files);

}  // namespace evenkeel::cli
