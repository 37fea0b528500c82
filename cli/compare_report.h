// The output of `compare`: JSON for programs, a table and sentences for people, and a picture of
// the memory of every engine over time.
#pragma once

#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/compare_run.h"
#include "evenkeel/profile.h"

namespace CLI {
class App;
}

namespace evenkeel::cli {

nlohmann::ordered_json to_report(const CompareOutcome& outcome);
std::string to_table(const CompareOutcome& outcome);
std::string to_words(const CompareOutcome& outcome);  // what the table means
std::string verdict(const CompareOutcome& outcome);   // the same in one sentence
std::string pattern_in_words(Pattern pattern);        // "rows in shuffled order"
// "rows in shuffled order of 512 MiB, cold, budget 64 MiB"
std::string work_in_words(const CompareOutcome& outcome);

// Whether the mapping soon had all it needs in memory, so that its speed says nothing about the
// disk.
bool read_once(const EngineOutcome& map);

// What went wrong, for stderr; empty when nothing did.
std::string complaint(const CompareOutcome& outcome);

ProfileReport to_picture(const CompareOutcome& outcome);

// Paths of the pictures. Empty: not written.
struct PictureOptions {
  std::string html, svg;
};
void add_picture_options(CLI::App& command, PictureOptions& options, const std::string& html_help);
// Throws Error if they cannot be written. Called before the work begins. `json` goes to stdout.
void require_writable(const PictureOptions& options, bool json);
// stdout, or stderr if a picture goes to stdout.
std::FILE* where_tables_go(const PictureOptions& options);
// Writes them and prints their paths to stderr. Throws Error.
void write_pictures(const PictureOptions& options, const ProfileReport& picture);

}  // namespace evenkeel::cli
