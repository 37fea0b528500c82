// evenkeel guard: keep the mapped files of a command, or of a running process, within a budget.
#include <fmt/core.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "base/visible.h"
#include "cli/child_command.h"
#include "cli/commands.h"
#include "cli/descriptor_limit.h"
#include "cli/guard_options.h"
#include "cli/guard_words.h"
#include "cli/options.h"
#include "cli/preload_library.h"
#include "cli/program_kind.h"
#include "cli/recording.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "process_guard/proc_source.h"
#include "process_guard/process_guard.h"
#include "process_guard/shared_table.h"
#include "process_guard/table_source.h"

namespace evenkeel::cli {
namespace {

constexpr char kGuardFooter[] = R"(
The command runs as usual: its input, output, signals and exit code are unchanged. The budget
covers file mappings of 1 MiB or more (--min), shared or private, together with the page cache
behind them, of the command and all processes it starts. Memory may exceed the budget for a moment,
by the larger of 32 MiB and 10 %. Heap memory, programs, libraries and tmpfs are left alone. No byte
is lost: changed pages are written first.

Readahead is switched off for files that are read at random, and on again for those that are read in
order (--access auto). If the readahead of many processes would fill the budget, it is reduced.

Needs no privileges; --pid needs CAP_SYS_NICE. Programs that no library can be loaded into (static,
setuid) and programs that install a seccomp filter run unguarded. If the guard knows of
files that it cannot guard, it prints a note.

Examples:
  evenkeel guard --budget 1GiB -- python train.py
  evenkeel guard --budget 512MiB --files '*.bin' --report mem.html -- ./job
  evenkeel guard --budget 1GiB --pid 4242)";

RecordingOptions recording(const GuardCommandOptions& options) {
  // A file that the tool held open would keep its file system from being unmounted.
  return {.files = options.files,
          .budget = options.guard.budget,
          .live = !options.process.no_live,
          .keep_files_open = false};
}

int conclude(const GuardCommandOptions& options, ProfileRun run, int exit_code,
             ProcessGuard* guard) {
  const ProfileSummary summary = summarize(run, options.guard.budget);
  std::string words, verdict;
  if (guard != nullptr) {
    const GuardReport report = guard->report();
    words = guard_words(report, guard->files(), run, summary);
    add_guard_facts(run, report, guard->files());
    verdict = guard_verdict(report, summary);
  }
  Written written;
  if (!options.outputs.paths().empty()) {
    ProfileReport report = report_of(std::move(run), summary, options.guard.budget);
    if (!verdict.empty()) report.subtitle = verdict;
    written = write_all(options.outputs, report);
  }
  say(stderr, fmt::format("\n{}{}", words, written.words));
  if (exit_code != 0) return exit_code;
  return written.all ? 0 : 1;
}

void say_note(const std::string& note) {
  say(stderr, fmt::format("evenkeel guard: {}\n", visible(note)));
}

// Everything that is needed to guard a command.
struct Preloaded {
  explicit Preloaded(const GuardCommandOptions& options)
      : library(find_preload_library()),
        table({.least_bytes = options.least_bytes, .first_advice = first_advice(options)}),
        source(table),
        guard({options.guard, options.files, say_note}, source) {}
  std::vector<std::string> environment() const {
    std::vector<std::string> variables = preload_variables(library);
    variables.push_back(table.variable());
    return variables;
  }
  const std::string library;
  SharedTableOwner table;
  TableSource source;
  ProcessGuard guard;

 private:
  static int first_advice(const GuardCommandOptions& options) {
    // With --files, which mappings are guarded is known only once their paths are seen.
    if (!options.files.empty()) return 0;
    if (options.guard.access == GuardAccess::kRandom) return MADV_RANDOM;
    return options.guard.access == GuardAccess::kSequential ? MADV_SEQUENTIAL : 0;
  }
};

// Null if the command cannot be guarded; the reason has been printed.
std::unique_ptr<Preloaded> prepare(const GuardCommandOptions& options) {
  std::string why = why_unguarded(look_at_program(options.command.front()));
  if (why.empty()) {
    try {
      return std::make_unique<Preloaded>(options);
    } catch (const std::exception& error) {
      why = std::string(error.what()) + "\nevenkeel guard: the command runs unguarded";
    }
  }
  say(stderr, fmt::format("evenkeel guard: {}\n", why));
  return nullptr;
}

// Capabilities that the tool has from its file (setcap) are for --pid. A process without them may
// not open the table in the /proc of one that has them. Ambient capabilities pass to the command,
// so they may stay; a file with capabilities of its own takes them away.
void drop_capabilities_of_the_file() {
  if (::geteuid() == 0) return;
  for (unsigned long one = 0; one <= CAP_LAST_CAP; ++one) {
    if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, one, 0UL, 0UL) == 1) return;
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, sets) != 0) return;
  bool any = false;
  for (__user_cap_data_struct& set : sets) {
    any |= set.permitted != 0;
    set.permitted = set.effective = 0;
  }
  if (any && ::syscall(SYS_capset, &header, sets) == 0) ::prctl(PR_SET_DUMPABLE, 1UL);
}

int guard_command(const GuardCommandOptions& options) {
  drop_capabilities_of_the_file();
  const std::unique_ptr<Preloaded> preloaded = prepare(options);
  try {
    Recorded recorded = record_command(
        options.command, preloaded ? preloaded->environment() : std::vector<std::string>{},
        recording(options));
    return conclude(options, std::move(recorded.run), recorded.exit_code,
                    preloaded ? &preloaded->guard : nullptr);
  } catch (const CannotStart& cannot) {
    say(stderr, fmt::format("evenkeel: {}\n", cannot.message));
    return cannot.exit_code;
  }
}

int guard_process(const GuardCommandOptions& options) {
  ProcSource source(*options.process.pid, options.least_bytes);
  GuardOptions guard = options.guard;
  guard.access = GuardAccess::kLeave;  // the advice of a running process cannot be changed
  ProcessGuard process_guard({guard, options.files, say_note}, source);
  return conclude(options,
                  record_process(*options.process.pid, options.process.seconds, recording(options)),
                  0, &process_guard);
}

void refuse_nonsense(const GuardCommandOptions& options) {
  refuse_command_and_process("guard", options.command, options.process);
  if (options.guard.budget < GuardOptions::kLeastBudget) {
    throw CLI::ValidationError("--budget", fmt::format("{} is too small: use at least {}",
                                                       format_size(options.guard.budget),
                                                       format_size(GuardOptions::kLeastBudget)));
  }
  if (options.process.pid && options.guard.keep_cache) {
    throw CLI::ValidationError(
        "--keep-cache",
        "cannot be used with --pid: from outside, pages are also dropped from the page cache");
  }
  if (options.process.pid && options.guard.access != GuardAccess::kAuto &&
      options.guard.access != GuardAccess::kLeave) {
    throw CLI::ValidationError("--access", "cannot be changed with --pid");
  }
  options.outputs.require_writable();
}

GuardAccess parse_access(const std::string& text) {
  if (text == "auto") return GuardAccess::kAuto;
  if (text == "random") return GuardAccess::kRandom;
  if (text == "sequential") return GuardAccess::kSequential;
  if (text == "leave") return GuardAccess::kLeave;
  throw Error(ErrorKind::kInvalid, "access",
              fmt::format("\"{}\" is not auto, random, sequential or leave", text));
}

int run(const GuardCommandOptions& options) {
  refuse_nonsense(options);
  raise_descriptor_limit();
  return options.process.pid ? guard_process(options) : guard_command(options);
}

}  // namespace

void add_guard(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("guard", "Keep the mapped files of any command within a budget");
  auto options = std::make_shared<GuardCommandOptions>();
  add_command_words(*command, options->command);
  add_size(
      *command, "--budget", [options](std::uint64_t bytes) { options->guard.budget = bytes; },
      "Bytes of mapped files in memory, page cache included")
      ->required();
  add_parsed(
      *command, "--access", "HOW",
      [options](const std::string& text) { options->guard.access = parse_access(text); },
      "auto (measured), random, sequential, or leave (as the program set it); default auto");
  command->add_flag("--keep-cache", options->guard.keep_cache,
                    "Limit resident pages only; leave the page cache to the kernel");
  add_patterns(*command, options->files, "Guard only these files; default all mapped files");
  add_size(
      *command, "--min", [options](std::uint64_t bytes) { options->least_bytes = bytes; },
      "Leave smaller mappings alone; default 1MiB");
  command->add_option("--report", options->outputs.html, "HTML page with memory over time")
      ->type_name("FILE");
  command->add_option("--json", options->outputs.json, "Write all samples and the summary")
      ->type_name("FILE");
  add_process_options(*command, options->process, "Guard");
  command->footer(kGuardFooter);
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace evenkeel::cli
