// One function per command: it adds the command and its options to the tool. When the command runs,
// it stores its exit code in `exit_code` or throws.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace evenkeel::cli {

void add_info(CLI::App& app, int& exit_code);
void add_compare(CLI::App& app, int& exit_code);
void add_compare_worker(CLI::App& app, int& exit_code);  // hidden: one engine, for `compare`
void add_demo(CLI::App& app, int& exit_code);
void add_cache(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);
void add_batches(CLI::App& app, int& exit_code);
void add_explain(CLI::App& app, int& exit_code);
void add_tokenize(CLI::App& app, int& exit_code);  // runs the Python package
void add_shuffle(CLI::App& app, int& exit_code);
void add_dedup(CLI::App& app, int& exit_code);
void add_stats(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_convert(CLI::App& app, int& exit_code);
void add_merge(CLI::App& app, int& exit_code);
void add_split(CLI::App& app, int& exit_code);
void add_sample(CLI::App& app, int& exit_code);
void add_profile(CLI::App& app, int& exit_code);
void add_guard(CLI::App& app, int& exit_code);
void add_top(CLI::App& app, int& exit_code);
void add_completions(CLI::App& app, int& exit_code);
void add_manual(CLI::App& app, int& exit_code);  // hidden: man pages, for the build

// The whole tool: reads the command line, runs the command, returns its exit code.
int run_tool(int argc, char** argv);

}  // namespace evenkeel::cli
