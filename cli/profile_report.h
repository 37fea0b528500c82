// What `evenkeel profile` was asked for, what it says of a run, and the files it writes.
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

struct ProfileOptions {
  std::vector<std::string> command;
  ProcessOptions process;
  ProfileOutputs outputs;
  std::vector<std::string> files;
  std::chrono::nanoseconds interval = std::chrono::milliseconds(10);
  std::optional<std::uint64_t> budget;
  bool fail_over_budget = false;
  std::optional<double> fail_slope;  // bytes a minute
};

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
