// evenkeel profile: records the memory of any command over time.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>

#include "cli/child_command.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/profile_report.h"
#include "cli/recording.h"
#include "cli/table.h"
#include "cli/terminal.h"

namespace evenkeel::cli {
namespace {

constexpr int kCheckFailed = 3;

constexpr char kProfileFooter[] = R"(
The command runs as usual: its input, output, signals and exit code are unchanged.
All processes that it starts are measured with it. memory is anon + shmem + the larger of mapped files and
page cache added: what the program occupies. No page is counted twice, even if processes share pages.
Slopes are those of the second half of the run. Options come before the command; -- is optional.

Exit code: that of the command (128 + N if signal N killed it, 127 if it was not found), or 3 if the
command succeeded but the check of --fail-over-budget or --fail-slope failed.

Examples:
  evenkeel profile -- python train.py
  evenkeel profile --budget 1GiB --fail-over-budget -o mem.html -- ./job --epochs 3
  evenkeel profile --fail-slope 1MiB/min --files 'data/*.bin' -- python train.py
  evenkeel profile --pid 4242 --seconds 30)";

// A budget for the mapped files: what --budget leaves after the rest of the program, or a quarter
// of what the files took, as a power of two.
std::uint64_t suggested_budget(const ProfileOptions& options, const ProfileSummary& summary) {
  constexpr std::uint64_t kLeastSuggested = 64 << 20;
  if (options.budget && *options.budget > summary.peak_unreclaimable + kLeastSuggested) {
    return *options.budget - summary.peak_unreclaimable;
  }
  return std::max(kLeastSuggested, std::bit_floor(summary.peak_file / 4));
}

std::string of_the_program(const ProfileOptions& options) {
  if (options.process.pid) return fmt::format("--pid {}", *options.process.pid);
  std::string words = "--";
  for (const std::string& word : options.command) words += " " + shell_word(word);
  return words;
}

void name_next(const ProfileOptions& options, const ProfileSummary& summary,
               const ProfileRun& run) {
  constexpr std::uint64_t kWorthGuarding = 64 << 20;
  if (summary.peak_file >= kWorthGuarding && 4 * summary.peak_file >= summary.peak_memory) {
    const std::uint64_t mib = std::max<std::uint64_t>(suggested_budget(options, summary) >> 20, 1);
    next_command(fmt::format("evenkeel guard --budget {}MiB {}", mib, of_the_program(options)),
                 "the same program, with its mapped files kept within that budget");
  } else if (run.files.empty()) {
    next_command("evenkeel profile --files 'YOUR_DATA*' " + of_the_program(options),
                 "the same, with the page cache of your data measured from the start");
  } else {
    const std::uint64_t mib = ((summary.peak_memory + summary.peak_memory / 8) >> 20) + 1;
    next_command(fmt::format("evenkeel profile --budget {}MiB --fail-over-budget {}", mib,
                             of_the_program(options)),
                 "a check for CI: exit code 3 if memory exceeds this run by more than an eighth");
  }
}

int conclude(const ProfileOptions& options, ProfileRun run, int exit_code) {
  const ProfileSummary summary = summarize(run, options.budget);
  const std::string words = to_words(run, summary);
  const ProfileReport report = report_of(std::move(run), summary, options.budget);
  // Write the files before printing: stderr may be a closed pipe.
  const Written written = write_all(options.outputs, report);
  const std::string verdict = wrapped(report.subtitle, 0) + "\n" + limits_words(summary);
  say(stderr, fmt::format("\n{}\n{}\n{}", words, verdict, written.words));
  const std::string complaint = failed_check(options, report.runs.front(), summary);
  if (!complaint.empty()) say(stderr, fmt::format("evenkeel: {}\n", complaint));
  if (exit_code != 0) return exit_code;
  if (!complaint.empty()) return kCheckFailed;
  if (!written.all) return 1;
  name_next(options, summary, report.runs.front());
  return 0;
}

RecordingOptions recording(const ProfileOptions& options) {
  return {options.interval, options.files, options.budget, !options.process.no_live};
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
    throw CLI::ValidationError("--fail-over-budget", "needs --budget SIZE");
  }
  options.outputs.require_writable();
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
  CLI::App* command = app.add_subcommand(
      "profile", "Record the memory of any command over time, as a page and a picture");
  auto options = std::make_shared<ProfileOptions>();
  add_command_words(*command, options->command);
  command
      ->add_option("-o,--output", options->outputs.html,
                   "HTML page; default evenkeel-profile.html, none if --json or --svg is given")
      ->type_name("FILE");
  command
      ->add_option("--json", options->outputs.json,
                   "Write all samples and the summary; - is stdout")
      ->type_name("FILE");
  command->add_option("--svg", options->outputs.svg, "Write a picture for papers and READMEs")
      ->type_name("FILE");
  add_parsed(
      *command, "--interval", "TIME",
      [options](const std::string& text) { options->interval = parse_interval(text); },
      "Time between two samples; default 10ms");
  add_patterns(*command, options->files,
               "Files whose page cache is measured; default those that the command maps or opens");
  add_size(
      *command, "--budget", [options](std::uint64_t bytes) { options->budget = bytes; },
      "The memory that the program should stay within");
  command->add_flag("--fail-over-budget", options->fail_over_budget,
                    "Exit with 3 if memory exceeded the budget");
  add_parsed(
      *command, "--fail-slope", "SIZE/min",
      [options](const std::string& text) { options->fail_slope = parse_slope(text); },
      "Exit with 3 if memory or RSS rises faster than this");
  add_process_options(*command, options->process, "Watch");
  command->footer(kProfileFooter);
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace evenkeel::cli
