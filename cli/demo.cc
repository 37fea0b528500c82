// evenkeel demo: the whole story on this machine, in about a minute.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/compare_report.h"
#include "cli/demo_file.h"
#include "cli/interrupt.h"
#include "cli/json_out.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

constexpr std::uint64_t kRowBytes = kDemoColumns * sizeof(float);
constexpr std::uint64_t kMostByDefault = 2_GiB, kLeast = 1_MiB;

struct Demo {
  std::uint64_t budget = 64_MiB;
  std::uint64_t size = 0;
  double seconds = 3;
  std::string folder;
  bool keep = false, json = false;

  std::uint64_t rows() const {
    return (size ? size : std::min(8 * budget, kMostByDefault)) / kRowBytes;
  }
};

constexpr char kFooter[] = R"(
Makes a file many times the budget, feeds random crops and shuffled rows of it through every engine,
cold, each in a process of its own, and shows what memory did. The file is removed at the end.

Examples:
  evenkeel demo
  evenkeel demo --budget 256MiB --dir /data
  evenkeel demo --json > demo.json)";

std::string meaning(const CompareOutcome& rows) {
  std::string text = "What to take from it: ";
  if (const EngineOutcome* map = rows.find(EngineKind::kMap)) {
    text += fmt::format(
        "map, a mapping that is kept, as np.memmap does, let {} of the file into memory under a "
        "budget of {}. ",
        format_size(map->growth.memory.value_or(map->growth.rss)), format_size(rows.spec.budget));
    if (read_once(*map)) {
      text +=
          "This file fits the machine, so map reads it once and is fast from then on; data that "
          "does "
          "not fit, or a job with a memory limit, has no such way out: then each touch is a read, "
          "and fetches its surroundings too. ";
    }
  }
  return text +
         "The other engines stay under the line, however large the file. direct is the fastest of "
         "them, for it has many requests under way at once and leaves the page cache alone; auto "
         "is "
         "the default, and picks for you: a mapping if the data fits the budget, else what is "
         "cached from the cache and the rest by direct.";
}

void refuse_nonsense(const Demo& demo) {
  if (demo.rows() * kRowBytes + kRowBytes > kLeast) return;
  throw Error(ErrorKind::kInvalid, "demo",
              fmt::format("a file of {} shows nothing", format_size(demo.rows() * kRowBytes)))
      .hint(fmt::format("--size {} at least, better 8 times the budget", format_size(kLeast)));
}

CompareSpec spec_of(const Demo& demo, const std::string& path, Pattern pattern) {
  CompareSpec spec;
  spec.paths = {path};
  spec.raw.dtype = "float32";
  spec.raw.shape = {-1, kDemoColumns};
  spec.pattern = pattern;
  spec.budget = demo.budget;
  spec.seconds = demo.seconds;
  return spec;
}

void introduce(const Demo& demo, const std::string& folder) {
  const std::uint64_t bytes = demo.rows() * kRowBytes;
  fmt::print(stderr, "{} of float32 rows in {}, read under a budget of {}, {:.0f} s in all\n\n",
             format_size(bytes), folder, format_size(demo.budget), 12 * demo.seconds + 5);
  if (lies_in_memory(folder)) {
    note(folder + " lies in memory, not on a disk: cold reads cannot be shown (try --dir)");
  }
  if (bytes <= demo.budget) note("the file fits the budget: there is little to see");
}

int run(const Demo& demo) {
  refuse_nonsense(demo);
  const InterruptGuard interrupts;
  const std::uint64_t bytes = demo.rows() * kRowBytes;
  const std::string folder = demo_folder(demo.folder, bytes);
  if (!demo.json) introduce(demo, folder);
  DemoFile file(folder, demo.rows());
  if (demo.keep) file.keep();

  const auto engines = parse_engines("map,remap,advise,read,direct,auto");
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  std::string complaints, words;
  for (const Pattern pattern : {Pattern::kCrops, Pattern::kRows}) {
    const CompareOutcome outcome =
        run_compare(spec_of(demo, file.path(), pattern), engines, CacheState::kCold);
    complaints += complaint(outcome);
    words = meaning(outcome);
    if (demo.json) {
      runs.push_back(to_report(outcome));
    } else {
      fmt::print("{}\n{}\n", to_table(outcome), to_words(outcome));
      std::fflush(stdout);
    }
  }
  if (demo.json) {
    const nlohmann::ordered_json report = {{"file", file.path()},
                                           {"size_bytes", bytes},
                                           {"budget_bytes", demo.budget},
                                           {"runs", std::move(runs)}};
    print_json(report);
  } else {
    fmt::print("{}", wrapped(words, 0));
  }
  if (!complaints.empty()) {
    std::fflush(stdout);
    fmt::print(stderr, "evenkeel: {}\n", complaints);
    return 1;
  }
  if (demo.json) return 0;
  if (demo.keep) {
    next_command("evenkeel compare " + shell_word(file.path()) +
                     " --dtype float32 --shape -1,162 --pattern scan --cold",
                 "the third pattern, on the file that was kept");
  } else {
    next_command("evenkeel compare YOUR_FILE --cold", "the same on your own data");
  }
  return 0;
}

}  // namespace

void add_demo(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("demo", "The whole story on this machine, in a minute");
  auto demo = std::make_shared<Demo>();
  add_size(
      *command, "--budget", [demo](std::uint64_t bytes) { demo->budget = bytes; },
      "What the data may occupy in memory; default 64MiB");
  add_size(
      *command, "--size", [demo](std::uint64_t bytes) { demo->size = bytes; },
      "Of the file; default 8 times the budget, 2GiB at most");
  command
      ->add_option("--dir", demo->folder, "Where to make it; default a temporary place on a disk")
      ->type_name("DIR");
  add_seconds(*command, demo->seconds);
  command->add_flag("--keep", demo->keep, "Leave the file there");
  command->add_flag("--json", demo->json, "Print the figures as JSON");
  command->footer(kFooter);
  command->callback([demo, &exit_code] { exit_code = run(*demo); });
}

}  // namespace evenkeel::cli
