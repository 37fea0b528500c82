// evenkeel profile: memory of any command over time.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <filesystem>

#include "base/visible.h"
#include "cli/child_command.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/profile_words.h"
#include "cli/status_row.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "profile/machine.h"
#include "profile/recorder.h"

namespace evenkeel::cli {
namespace {

constexpr int kCheckFailed = 3;

constexpr char kFooter[] = R"(
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

std::vector<std::string> outputs(const ProfileOptions& options) {
  std::vector<std::string> paths;
  for (const std::string& path : {options.html, options.json, options.svg}) {
    if (!path.empty()) paths.push_back(path);
  }
  return paths;
}

ProfileReport report_of(const ProfileOptions& options, ProfileRun run,
                        const ProfileSummary& summary) {
  ProfileReport report;
  report.title = run.name;
  report.subtitle = verdict(summary, options.budget);
  report.budget = options.budget;
  describe_machine(report, run.files.empty() ? "." : run.files.front().path);
  report.runs.push_back(std::move(run));
  return report;
}

struct Written {
  bool all = true;
  std::string words;  // a line for each: where it is, or why it is not
};

// Goes on where one cannot be written: the others may still be.
Written write_all(const ProfileOptions& options, const ProfileReport& report) {
  Written written;
  const auto write = [&](const char* what, const std::string& path, auto text) {
    if (path.empty()) return;
    try {
      write_report(path, text(report));
      written.words += fmt::format("{}: {}\n", what, visible(path));
    } catch (const Error& error) {
      written.words += fmt::format("evenkeel: {}\n", error.what());
      written.all = false;
    }
  };
  write("report", options.html, to_html);
  write("JSON", options.json, to_json);
  write("SVG", options.svg, to_svg);
  return written;
}

void name_next(const ProfileOptions& options, const ProfileRun& run) {
  if (run.files.empty()) {
    std::string again = "evenkeel profile --files 'YOUR_DATA*' ";
    again += options.pid ? fmt::format("--pid {}", *options.pid) : "--";
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
  const ProfileReport report = report_of(options, std::move(run), summary);
  // Before anything is said: stderr may be a pipe that nobody reads any more.
  const Written written = write_all(options, report);
  say(stderr, fmt::format("\n{}{}\n{}", words, report.subtitle, written.words));
  const std::string complaint = failed_check(options, report.runs.front(), summary);
  if (!complaint.empty()) say(stderr, fmt::format("evenkeel: {}\n", complaint));
  if (exit_code != 0) return exit_code;
  if (!complaint.empty()) return kCheckFailed;
  if (!written.all) return 1;
  name_next(options, report.runs.front());
  return 0;
}

// "python train.py --lr 0.1": without the folders that are in the command line anyway.
std::string short_name(const std::vector<std::string>& command) {
  std::string name;
  for (const std::string& word : command) {
    if (!name.empty()) name += ' ';
    name += std::filesystem::path(word).has_filename()
                ? std::filesystem::path(word).filename().string()
                : word;
  }
  constexpr std::size_t kMost = 60;
  const std::string shown = first_columns(name, kMost);
  return shown.size() < name.size() ? shown + "…" : name;
}

void add_ending(ProfileRun& run, const Ending& ending, std::size_t left) {
  run.ended = ending.words();
  run.facts.emplace_back("largest process, by the kernel's own mark", format_size(ending.peak_rss));
  if (left > 0) {
    run.notes.push_back(fmt::format("{} of its processes outlived the command.", left));
  }
  if (ending.signal == SIGKILL) {
    run.notes.push_back(
        "Nobody but the kernel or a person kills with SIGKILL: if it was the out-of-memory killer, "
        "`dmesg` has a line, and the report shows what grew.");
  }
}

struct Recorded {
  ProfileRun run;
  int exit_code;
};

// Throws CannotStart.
Recorded record_command(const ProfileOptions& options) {
  MarkFile marks;
  ChildCommand child(options.command, {std::string(kMarksVariable) + "=" + marks.path()});
  Recorder recorder(child.pid(),
                    {.interval = options.interval, .files = options.files, .marks = &marks});
  child.go();  // time has begun: nothing can be marked before
  Ending ending;
  {
    StatusRow row(options.live);
    ending = child.wait(options.interval, [&](bool ended) {
      ended ? recorder.sample_all() : recorder.sample();
      if (row.due()) row.show(live_line(recorder.latest(), options.budget));
    });
  }
  recorder.sample_all();
  const std::size_t left = recorder.living();
  Recorded recorded{recorder.finish(), ending.exit_code};
  recorded.run.name = short_name(options.command);
  recorded.run.command = options.command;
  add_ending(recorded.run, ending, left);
  return recorded;
}

int profile_command(const ProfileOptions& options) {
  try {
    Recorded recorded = record_command(options);
    return conclude(options, std::move(recorded.run), recorded.exit_code);
  } catch (const CannotStart& cannot) {
    say(stderr, fmt::format("evenkeel: {}\n", cannot.message));
    return cannot.exit_code;
  }
}

// True: a signal came.
bool wait_for_next(const ProfileOptions& options, const ProfileSample& latest,
                   SignalWatch& signals) {
  std::chrono::nanoseconds wait = options.interval;
  if (options.seconds > 0) {
    const std::chrono::duration<double> left(options.seconds - latest.seconds);
    wait = std::min(wait, std::chrono::duration_cast<std::chrono::nanoseconds>(left));
  }
  return signals.came(wait);
}

int profile_process(const ProfileOptions& options) {
  SignalWatch signals;
  Recorder recorder(*options.pid, {.interval = options.interval, .files = options.files});
  bool ended = false;
  {
    StatusRow row(options.live);
    do {
      ended = !recorder.sample();
      if (row.due()) row.show(live_line(recorder.latest(), options.budget));
    } while (!ended && (options.seconds == 0 || recorder.latest().seconds < options.seconds) &&
             !wait_for_next(options, recorder.latest(), signals));
  }
  recorder.sample_all();
  ProfileRun run = recorder.finish();
  run.name = fmt::format("process {}", *options.pid);
  run.ended = ended ? "ended" : "still running";
  return conclude(options, std::move(run), 0);
}

void refuse_nonsense(const ProfileOptions& options) {
  if (options.command.empty() == !options.pid) {
    throw CLI::ValidationError("profile", options.pid ? "a command and --pid: one or the other"
                                                      : "which command? -- CMD..., or --pid N");
  }
  if (options.fail_over_budget && !options.budget) {
    throw CLI::ValidationError("--fail-over-budget", "over which? give --budget SIZE");
  }
  if (options.seconds > 0 && !options.pid) {
    throw CLI::ValidationError("--seconds", "goes with --pid; a command runs until it ends");
  }
  // Before the command has run for hours.
  for (const std::string& path : outputs(options)) require_writable(path);
}

int run(ProfileOptions options) {
  if (outputs(options).empty()) options.html = "evenkeel-profile.html";
  refuse_nonsense(options);
  return options.pid ? profile_process(options) : profile_command(options);
}

// For an option that takes any number of words, CLI11 makes two of "[1,2]". It does not for one
// that asks for more words than there ever are, and gets fewer.
void take_words_as_they_are(CLI::Option& option) {
  constexpr int kMost = CLI::detail::expected_max_vector_size;
  option.expected(kMost, kMost)->take_all()->allow_extra_args(false);
}

}  // namespace

void add_profile(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("profile", "Memory of any command over time, as a page and a picture");
  auto options = std::make_shared<ProfileOptions>();
  take_words_as_they_are(
      *command->add_option("CMD", options->command, "The command, after --")->type_name(""));
  command
      ->add_option("-o,--output", options->html,
                   "The page; default evenkeel-profile.html, none where --json or --svg is given")
      ->type_name("FILE");
  command->add_option("--json", options->json, "All samples and the summary")->type_name("FILE");
  command->add_option("--svg", options->svg, "A picture for papers and READMEs")->type_name("FILE");
  add_parsed(
      *command, "--interval", "TIME",
      [options](const std::string& text) { options->interval = parse_interval(text); },
      "Between two samples; default 10ms");
  command
      ->add_option("--files", options->files,
                   "Files whose page cache is watched; default those it maps or opens")
      ->type_name("GLOB")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);  // else "[ab]" is no pattern, but "ab"
  add_size(
      *command, "--budget", [options](std::uint64_t bytes) { options->budget = bytes; },
      "The line that memory should stay under");
  command->add_flag("--fail-over-budget", options->fail_over_budget,
                    "Exit with 3 when memory was over the budget");
  add_parsed(
      *command, "--fail-slope", "SIZE/min",
      [options](const std::string& text) { options->fail_slope = parse_slope(text); },
      "Exit with 3 when memory or RSS rises faster than this");
  add_parsed(
      *command, "--pid", "N",
      [options](const std::string& text) { options->pid = parse_pid(text); },
      "Watch a running process instead, until it ends or Ctrl-C");
  add_parsed(
      *command, "--seconds", "S",
      [options](const std::string& text) { options->seconds = parse_seconds(text); },
      "With --pid: for so long");
  command->add_flag("!--no-live", options->live, "No line at the foot of the terminal");
  command->footer(kFooter);
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace evenkeel::cli
