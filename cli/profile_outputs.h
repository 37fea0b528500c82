// Files that a profile is written to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evenkeel/profile.h"

namespace evenkeel::cli {

struct ProfileOutputs {
  std::string html, json, svg;  // empty: none; "-": standard output
  std::vector<std::string> paths() const;
  // Throws Error when one of them could not be written, before a command has run for hours.
  void require_writable() const;
};

ProfileReport report_of(ProfileRun run, const ProfileSummary& summary,
                        std::optional<std::uint64_t> budget);

// A file, or standard output for "-". Throws Error (kSystem).
void write_output(const std::string& path, const std::string& text);
void require_writable_output(const std::string& path);

struct Written {
  bool all = true;
  std::string words;  // a line for each: where it is, or why it is not
};

// Goes on where one cannot be written: the others may still be.
Written write_all(const ProfileOutputs& outputs, const ProfileReport& report);

}  // namespace evenkeel::cli
