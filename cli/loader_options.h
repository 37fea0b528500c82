// The options of a token loader, for the commands that have one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evenkeel/tokens.h"

namespace CLI {
class App;
}

namespace evenkeel::cli {

struct LoaderWords {
  std::vector<std::string> files;
  std::string dtype;  // as typed; empty: taken from the file, or uint16
  std::uint64_t budget = 64_MiB;
  EngineKind engine = EngineKind::kAuto;
  LoaderOptions loader;             // as typed; see options()
  std::uint64_t mixed_windows = 0;  // 0: as in DocumentOptions

  Tokens open() const;
  LoaderOptions options() const;
  std::string words() const;  // files and options as text, to suggest the next command
};

// Adds FILE... and the options. `words` must outlive the parsing.
void add_loader_options(CLI::App& app, LoaderWords& words);

}  // namespace evenkeel::cli
