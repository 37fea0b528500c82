// The options of `evenkeel profile`, the text that it prints, and the files that it writes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "evenkeel/profile.h"

namespace evenkeel::cli {

struct ProfileOutputs {
  std::string html, json, svg;  // empty: none; "-": standard output
  std::vector<std::string> paths() const;
  // Throws Error if one of them cannot be written. Called before the command runs, which may take
  // hours.
  void require_writable() const;
};

ProfileReport report_of(ProfileRun run, const ProfileSummary& summary,
                        std::optional<std::uint64_t> budget);

// A file, or standard output for "-". Throws Error (kSystem).
void write_output(const std::string& path, const std::string& text);
void require_writable_output(const std::string& path);
// Throws Error if the report would replace a file that is read. An empty path is no report.
void require_report_apart(const std::vector<std::string>& inputs, const std::string& path);
// Each of several outputs, which must not be the same.
void require_writable_outputs(const std::vector<std::string>& paths);

struct Written {
  bool all = true;
  std::string words;  // a line for each: its path, or why it was not written
};

// If one cannot be written, the others still are.
Written write_all(const ProfileOutputs& outputs, const ProfileReport& report);

struct ProfileOptions {
  std::vector<std::string> command;
  ProcessOptions process;
  ProfileOutputs outputs;
  std::vector<std::string> files;
  std::chrono::nanoseconds interval = std::chrono::milliseconds(10);
  std::optional<std::uint64_t> budget;
  bool fail_over_budget = false;
  std::optional<double> fail_slope;  // bytes per minute
};

// The status line on the terminal while the command runs.
std::string live_line(const ProfileSample& sample, std::optional<std::uint64_t> budget);

// Peaks and slopes, a few lines.
std::string to_words(const ProfileRun& run, const ProfileSummary& summary);

// The check that failed, and why; empty: none failed.
std::string failed_check(const ProfileOptions& options, const ProfileRun& run,
                         const ProfileSummary& summary);

// Which limits would end the program, and at which size: a list with a title.
std::string limits_words(const ProfileSummary& summary);

}  // namespace evenkeel::cli
