#include "cli/recording.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "cli/child_command.h"
#include "cli/profile_report.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "profile/recorder.h"

namespace evenkeel::cli {
namespace {

// "python train.py --lr 0.1": without folders, which the full command line shows.
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
  run.facts.emplace_back("largest process (ru_maxrss)", format_size(ending.peak_rss));
  if (left > 0) {
    run.notes.push_back(fmt::format("{} of its processes outlived the command.", left));
  }
  if (ending.signal == SIGKILL) {
    run.notes.push_back(
        "SIGKILL comes from the kernel or a person. If it was the out-of-memory killer, `dmesg` "
        "says so, and the report shows what grew.");
  }
}

// Returns whether a signal came.
bool wait_for_next(std::chrono::nanoseconds wait, double seconds, const ProfileSample& latest,
                   SignalWatch& signals) {
  if (seconds > 0) {
    const std::chrono::duration<double> left(seconds - latest.seconds);
    wait = std::min(wait, std::chrono::duration_cast<std::chrono::nanoseconds>(left));
  }
  return signals.came(wait);
}

}  // namespace

Recorded record_command(const std::vector<std::string>& command,
                        const std::vector<std::string>& environment,
                        const RecordingOptions& options) {
  MarkFile marks;
  std::vector<std::string> added = environment;
  added.push_back(std::string(kMarksVariable) + "=" + marks.path());
  ChildCommand child(command, added);
  Recorder recorder(child.pid(), {.interval = options.interval,
                                  .files = options.files,
                                  .marks = &marks,
                                  .keep_files_open = options.keep_files_open});
  child.go();  // after the recorder has started: no mark is earlier
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
  recorded.run.name = short_name(command);
  recorded.run.command = command;
  add_ending(recorded.run, ending, left);
  return recorded;
}

ProfileRun record_process(pid_t pid, double seconds, const RecordingOptions& options) {
  SignalWatch signals;
  Recorder recorder(pid, {.interval = options.interval,
                          .files = options.files,
                          .keep_files_open = options.keep_files_open});
  bool ended = false;
  {
    StatusRow row(options.live);
    do {
      ended = !recorder.sample();
      if (row.due()) row.show(live_line(recorder.latest(), options.budget));
    } while (!ended && (seconds == 0 || recorder.latest().seconds < seconds) &&
             !wait_for_next(options.interval, seconds, recorder.latest(), signals));
  }
  recorder.sample_all();
  ProfileRun run = recorder.finish();
  run.name = fmt::format("process {}", pid);
  run.ended = ended ? "ended" : "still running";
  return run;
}

}  // namespace evenkeel::cli
