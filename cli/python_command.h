// Commands that Python runs: the options are known here, for help, completions and the manual.
#pragma once

namespace CLI {
class App;
}

namespace evenkeel::cli {

// Becomes python3, or the program that EVENKEEL_PYTHON names: main of this module of the package,
// with the options as they were given. Throws Error if it cannot be started.
[[noreturn]] void run_in_python(const CLI::App& command, const char* module, const char* extra);

}  // namespace evenkeel::cli
