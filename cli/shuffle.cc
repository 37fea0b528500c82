// evenkeel shuffle: items of files far larger than memory, in random order.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/prepare_options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"

namespace evenkeel::cli {
namespace {

struct ShuffleWords {
  ItemWords items;
  WorkBudget budget;
  ShuffleOptions options;
  bool json = false;
};

constexpr char kShuffleFooter[] = R"(
Every order is equally likely. The same seed gives the same file on any machine and with any budget.
It takes as much free disk as the input is large, beside the output or in the folder of --scratch.
A run that was killed goes on with --resume.

Examples:
  evenkeel shuffle features.npy -o shuffled.npy --seed 7
  evenkeel shuffle 'part_*.jsonl' -o all.jsonl --budget 1GiB
  evenkeel shuffle corpus.idx -o shuffled.bin --format megatron
  evenkeel shuffle train.bin --unit blocks --block 1024 -o train_shuffled.bin
  evenkeel shuffle features.npy -o shuffled.npy --seed 7 --resume)";

int run(const ShuffleWords& words) {
  ShuffleOptions options = words.options;
  options.input = words.items.input();
  options.budget = words.budget.budget();
  if (!options.resume && std::filesystem::exists(options.output + ".shuffle.partial.state")) {
    note("unfinished work on this output is dropped; --resume would go on with it");
  }
  WorkView view;
  options.progress = view.callback();
  const WorkReport report = shuffle(options);
  view.clear();
  const double seconds = view.seconds();
  if (words.json) {
    print_json({{"output", options.output},
                {"unit", item_unit_name(options.input.unit)},
                {"items", report.items},
                {"bytes", report.bytes},
                {"seed", options.seed},
                {"budget_bytes", options.budget.limit()},
                {"budget_peak_bytes", options.budget.peak()},
                {"resumed", report.resumed},
                {"seconds", seconds},
                {"how", report.how}});
    return 0;
  }
  say(stdout,
      facts({{"output", options.output},
             {"items", fmt::format("{} {}, {}", with_commas(report.items),
                                   item_unit_name(options.input.unit), format_size(report.bytes))},
             {"order", fmt::format("random, by seed {}", options.seed)},
             {"time", fmt::format("{:.1f} s, {}/s", seconds,
                                  format_size(static_cast<std::uint64_t>(
                                      double(report.bytes) / std::max(seconds, 1e-3))))},
             {"budget",
              fmt::format("{}, of which {} were reserved", format_size(options.budget.limit()),
                          format_size(options.budget.peak()))},
             {"how", report.how}}));
  return 0;
}

}  // namespace

void add_shuffle(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "shuffle", "Rows, lines, documents or blocks of files of any size, in random order");
  auto words = std::make_shared<ShuffleWords>();
  add_item_options(*command, words->items);
  command->add_option("-o,--output", words->options.output, "The file to write")
      ->type_name("FILE")
      ->required();
  add_count(*command, "--seed", words->options.seed, 0, "Which of the random orders; default 0");
  command
      ->add_option("--format", words->options.format,
                   "For tokens: nanogpt, llm.c, megatron, datatrove or npy; default: as the input")
      ->type_name("NAME");
  add_work_budget(*command, words->budget);
  command->add_option("--scratch", words->options.scratch, "A folder for the scratch file")
      ->type_name("DIR");
  command->add_flag("--resume", words->options.resume, "Go on where an earlier run was killed");
  add_size(
      *command, "--checkpoint",
      [words](std::uint64_t bytes) { words->options.checkpoint_bytes = bytes; },
      "Bytes after which a killed run can go on; default 1GiB");
  command->add_flag("--checksums", words->options.checksums,
                    "Write OUTPUT.xxh3, too, for `evenkeel verify`");
  command->add_flag("--json", words->json, "Print the figures as JSON");
  command->footer(kShuffleFooter);
  command->callback([words, &exit_code] { exit_code = run(*words); });
}

}  // namespace evenkeel::cli
