// The command-line tool. Results go to stdout, everything else to stderr. Exit codes: 0 success, 1
// failure, 2 invalid usage.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <new>
#include <sstream>

#include "base/visible.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "evenkeel/error.h"
#include "evenkeel/version.h"

namespace {

constexpr char kToolFooter[] = R"(
Examples:
  evenkeel demo                                    every engine on this machine, in a minute
  evenkeel info features.npy                       what is in a file, how much of it is cached
  evenkeel compare features.npy --pattern rows     every engine on your own file
  evenkeel profile -- python train.py              memory of any command over time
  evenkeel guard --budget 1GiB -- python train.py  keep its mapped files within a budget
  evenkeel top                                     which processes use Evenkeel, and how fast they read
  evenkeel batches train.bin --cold                training batches, and how fast they arrive
  evenkeel tokenize corpus.jsonl -o train.bin --tokenizer gpt2
  evenkeel shuffle features.npy -o shuffled.npy    files far larger than memory, in random order
  evenkeel dedup all.jsonl -o unique.jsonl         without exact duplicates
  evenkeel doctor /data                            what this machine allows

Sizes: 64MiB, 1.5GB, 8M. KiB MiB GiB (and K M G) are powers of two, KB MB GB powers of ten.)";

int complain(const std::string& what) {
  evenkeel::cli::say(stderr, fmt::format("evenkeel: {}\n", what));
  return 1;
}

int wrongly_called(const CLI::App& app, const std::string& what) {
  const auto chosen = app.get_subcommands();
  evenkeel::cli::say(stderr, fmt::format("evenkeel: {}\n", what));
  evenkeel::cli::say(stderr, chosen.empty()
                                 ? "usage: evenkeel --help lists the commands\n"
                                 : fmt::format("usage: evenkeel {} --help lists the options\n",
                                               chosen.front()->get_name()));
  return 2;
}

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (known->get_name() == name) return known;
  }
  return nullptr;
}

// If --json is a flag, JSON always goes to stdout, so `--json -` is accepted and means the same.
void take_dash_after_json(const CLI::App& command, std::vector<std::string>& words) {
  const CLI::Option* json = command.get_option_no_throw("--json");
  if (!json || json->get_expected_min() > 0) return;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i - 1] != "--json" || words[i] != "-") continue;
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

// The arguments in the order that CLI11 expects: the last one first.
std::vector<std::string> words_to_parse(const CLI::App* command, int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (command) {
    std::vector<std::string> rest(words.begin() + 1, words.end());
    rest = evenkeel::cli::separate_command(*command, std::move(rest));
    take_dash_after_json(*command, rest);
    words.resize(1);
    words.insert(words.end(), rest.begin(), rest.end());
  }
  std::reverse(words.begin(), words.end());
  return words;
}

}  // namespace

int evenkeel::cli::run_tool(int argc, char** argv) {
  CLI::App app("Reads data far larger than memory within a budget that you set.", "evenkeel");
  app.set_version_flag("--version", "evenkeel " EVENKEEL_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer(kToolFooter);

  int exit_code = 0;
  evenkeel::cli::add_demo(app, exit_code);
  evenkeel::cli::add_info(app, exit_code);
  evenkeel::cli::add_compare(app, exit_code);
  evenkeel::cli::add_profile(app, exit_code);
  evenkeel::cli::add_guard(app, exit_code);
  evenkeel::cli::add_top(app, exit_code);
  evenkeel::cli::add_batches(app, exit_code);
  evenkeel::cli::add_explain(app, exit_code);
  evenkeel::cli::add_tokenize(app, exit_code);
  evenkeel::cli::add_shuffle(app, exit_code);
  evenkeel::cli::add_convert(app, exit_code);
  evenkeel::cli::add_merge(app, exit_code);
  evenkeel::cli::add_split(app, exit_code);
  evenkeel::cli::add_sample(app, exit_code);
  evenkeel::cli::add_dedup(app, exit_code);
  evenkeel::cli::add_stats(app, exit_code);
  evenkeel::cli::add_verify(app, exit_code);
  evenkeel::cli::add_cache(app, exit_code);
  evenkeel::cli::add_doctor(app, exit_code);
  evenkeel::cli::add_completions(app, exit_code);
  evenkeel::cli::add_manual(app, exit_code);
  evenkeel::cli::add_compare_worker(app, exit_code);

  if (argc <= 1) {
    evenkeel::cli::say(stderr, app.help());
    return 2;
  }
  if (argv[1][0] == '-' && !app.get_option_no_throw(argv[1])) {
    return wrongly_called(app,
                          fmt::format("there is no option \"{}\"", evenkeel::visible(argv[1])));
  }
  const CLI::App* command = find_command(app, argv[1]);
  if (argv[1][0] != '-' && !command) {
    return wrongly_called(app,
                          fmt::format("there is no command \"{}\"", evenkeel::visible(argv[1])));
  }
  try {
    try {
      app.parse(words_to_parse(command, argc, argv));
    } catch (const CLI::Success& asked) {  // --help, --version
      std::ostringstream text;
      exit_code = app.exit(asked, text);
      evenkeel::cli::print_out(text.str());
    }
    if (exit_code == 0) evenkeel::cli::flush_stdout();
    return exit_code;
  } catch (const CLI::ParseError& error) {
    return wrongly_called(app, error.what());
  } catch (const evenkeel::cli::Interrupted& interrupted) {
    return 128 + interrupted.signal;
  } catch (const std::bad_alloc&) {
    return complain("out of memory");
  } catch (const std::exception& error) {
    return complain(error.what());
  }
}
