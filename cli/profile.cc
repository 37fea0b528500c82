// evenkeel profile: memory of any command over time.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/child_command.h"
#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/options.h"
#include "cli/process_options.h"
#include "cli/profile_options.h"
#include "cli/profile_words.h"
#include "cli/recording.h"
#include "cli/terminal.h"

namespace evenkeel::cli {
namespace {

constexpr int kCheckFailed = 3;

constexpr char kProfileFooter[] = R"(
The command runs as it would without this: its input, output, signals and exit code are its own.
All processes it starts are measured with it. memory is the larger of RSS and of anon + shmem + page
cache added: what the program occupies, no page counted twice. Slopes are those of the second half of
the run.

Exit code: the command's own (128 + N when signal N killed it, 127 when it is not there); 3 when the
command succeeded and --fail-over-budget or --fail-slope says no.

Examples:
  evenkeel profile -- python train.py
  evenkeel profile --budget 1GiB --fail-over-budget -o mem.html -- ./job --epochs 3
  evenkeel profile --fail-slope 1MiB/min --files 'data/*.bin' -- python train.py
  evenkeel profile --pid 4242 --seconds 30)";

void name_next(const ProfileOptions& options, const ProfileRun& run) {
  if (run.files.empty()) {
    std::string again = "evenkeel profile --files 'YOUR_DATA*' ";
    again += options.process.pid ? fmt::format("--pid {}", *options.process.pid) : "--";
    for (const std::string& word : options.command) again += " " + shell_word(word);
    next_command(again, "the same, with the page cache of your data from before the start");
    return;
  }
  const auto largest = std::ranges::max_element(run.files, {}, &ProfileFile::size);
  next_command("evenkeel info " + shell_word(largest->path),
               "what is in the largest file it read, and how much of it is cached now");
}

int conclude(const ProfileOptions& options, ProfileRun run, int exit_code) {
  const ProfileSummary summary = summarize(run, options.budget);
  const std::string words = to_words(run, summary);
  const ProfileReport report = report_of(std::move(run), summary, options.budget);
  // Before anything is said: stderr may be a pipe that nobody reads any more.
  const Written written = write_all(options.outputs, report);
  say(stderr, fmt::format("\n{}{}\n{}", words, report.subtitle, written.words));
  const std::string complaint = failed_check(options, report.runs.front(), summary);
  if (!complaint.empty()) say(stderr, fmt::format("evenkeel: {}\n", complaint));
  if (exit_code != 0) return exit_code;
  if (!complaint.empty()) return kCheckFailed;
  if (!written.all) return 1;
  name_next(options, report.runs.front());
  return 0;
}

RecordingOptions recording(const ProfileOptions& options) {
  return {options.interval, options.files, options.budget, options.process.live};
}

int profile_command(const ProfileOptions& options) {
  try {
    Recorded recorded = record_command(options.command, {}, recording(options));
    return conclude(options, std::move(recorded.run), recorded.exit_code);
  } catch (const CannotStart& cannot) {
    say(stderr, fmt::format("evenkeel: {}\n", cannot.message));
    return cannot.exit_code;
  }
}

void refuse_nonsense(const ProfileOptions& options) {
  refuse_command_and_process("profile", options.command, options.process);
  if (options.fail_over_budget && !options.budget) {
    throw CLI::ValidationError("--fail-over-budget", "over which? give --budget SIZE");
  }
  // Before the command has run for hours.
  for (const std::string& path : options.outputs.paths()) evenkeel::require_writable(path);
}

int run(ProfileOptions options) {
  if (options.outputs.paths().empty()) options.outputs.html = "evenkeel-profile.html";
  refuse_nonsense(options);
  if (!options.process.pid) return profile_command(options);
  return conclude(options,
                  record_process(*options.process.pid, options.process.seconds, recording(options)),
                  0);
}

}  // namespace

void add_profile(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("profile", "Memory of any command over time, as a page and a picture");
  auto options = std::make_shared<ProfileOptions>();
  add_command_words(*command, options->command);
  command
      ->add_option("-o,--output", options->outputs.html,
                   "The page; default evenkeel-profile.html, none where --json or --svg is given")
      ->type_name("FILE");
  command->add_option("--json", options->outputs.json, "All samples and the summary")
      ->type_name("FILE");
  command->add_option("--svg", options->outputs.svg, "A picture for papers and READMEs")
      ->type_name("FILE");
  add_parsed(
      *command, "--interval", "TIME",
      [options](const std::string& text) { options->interval = parse_interval(text); },
      "Between two samples; default 10ms");
  add_patterns(*command, options->files,
               "Files whose page cache is watched; default those it maps or opens");
  add_size(
      *command, "--budget", [options](std::uint64_t bytes) { options->budget = bytes; },
      "The line that memory should stay under");
  command->add_flag("--fail-over-budget", options->fail_over_budget,
                    "Exit with 3 when memory was over the budget");
  add_parsed(
      *command, "--fail-slope", "SIZE/min",
      [options](const std::string& text) { options->fail_slope = parse_slope(text); },
      "Exit with 3 when memory or RSS rises faster than this");
  add_process_options(*command, options->process, "Watch");
  command->footer(kProfileFooter);
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace evenkeel::cli
