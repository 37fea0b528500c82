// Commands that run in Python. Their options are defined here, for help, completions and the
// manual.
#pragma once

namespace CLI {
class App;
}

namespace evenkeel::cli {

// Replaces this process with python3, or the program that EVENKEEL_PYTHON names, and calls main()
// of this module of the package with the options that were given. Throws Error if it cannot be
// started.
[[noreturn]] void run_in_python(const CLI::App& command, const char* module);

}  // namespace evenkeel::cli
