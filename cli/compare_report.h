// What `compare` says: JSON for programs, a table and a sentence for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/compare_run.h"

namespace evenkeel::cli {

nlohmann::ordered_json to_report(const CompareOutcome& outcome);
std::string to_table(const CompareOutcome& outcome);
std::string to_words(const CompareOutcome& outcome);  // what the table means
std::string verdict(const CompareOutcome& outcome);   // the same in one sentence
// "rows in shuffled order of 512 MiB, cold, budget 64 MiB"
std::string work_in_words(const CompareOutcome& outcome);

// A mapping that soon held all it needs in memory: the race it wins is not about the disk.
bool read_once(const EngineOutcome& map);

// What went wrong, for stderr; empty when nothing did.
std::string complaint(const CompareOutcome& outcome);

}  // namespace evenkeel::cli
