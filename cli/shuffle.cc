// evenkeel shuffle: items of files far larger than memory, in random order.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/prepare_options.h"
#include "cli/python_command.h"
#include "cli/table.h"
#include "cli/terminal.h"

namespace evenkeel::cli {
namespace {

struct ShuffleWords {
  ItemWords items;
  WorkWords work;
  ShuffleOptions options;
  std::string manifest, parts, part;  // for Python
  bool finish = false;
};

constexpr char kShuffleFooter[] = R"(
Every order is equally likely. The same seed gives the same file on any machine and with any budget.
It needs free disk space of the size of the input, beside the output or in the --scratch folder.
Continue a killed run with --resume.

Examples:
  evenkeel shuffle features.npy -o shuffled.npy --seed 7
  evenkeel shuffle 'part_*.jsonl' -o all.jsonl --budget 1GiB
  evenkeel shuffle corpus.idx -o shuffled.bin --format megatron
  evenkeel shuffle train.bin --unit blocks --block 1024 -o train_shuffled.bin
  evenkeel shuffle features.npy -o shuffled.npy --seed 7 --resume
On a cluster (these need the Python package):
  evenkeel shuffle 'part_*.npy' -o all.npy --manifest m.json --parts 64
  evenkeel shuffle --manifest m.json --part 17
  evenkeel shuffle --manifest m.json --finish)";

int run(const CLI::App& command, const ShuffleWords& words) {
  if (!words.manifest.empty() || !words.parts.empty() || !words.part.empty() || words.finish) {
    run_in_python(command, "evenkeel._shuffle_command");
  }
  if (words.items.files.empty()) throw CLI::RequiredError("FILE");
  if (words.work.output.empty()) throw CLI::RequiredError("--output");
  ShuffleOptions options = words.options;
  options.input = words.items.input();
  words.work.apply(options);
  if (!options.resume && std::filesystem::exists(options.output + ".shuffle.partial.state")) {
    note("discarding unfinished work on this output; use --resume to continue it");
  }
  WorkView view;
  options.progress = view.callback();
  options.while_waiting = check_interrupt;
  const WorkReport report = shuffle(options);
  view.clear();
  const double seconds = view.seconds();
  const ItemUnit unit = options.input.unit;
  if (words.work.json) {
    nlohmann::ordered_json json = {{"output", options.output}, {"seed", options.seed}};
    add_to_json(json, unit, report, options.budget, seconds);
    print_json(json);
    return 0;
  }
  say(stdout, facts({{"output", options.output},
                     {"items", items_in_words(unit, report)},
                     {"order", fmt::format("random, by seed {}", options.seed)},
                     {"time", speed_in_words(report, seconds)},
                     {"budget", budget_in_words(options.budget)},
                     {"how", report.how}}));
  return 0;
}

}  // namespace

void add_shuffle(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "shuffle", "Shuffle rows, lines, documents or blocks of files of any size");
  auto words = std::make_shared<ShuffleWords>();
  add_item_options(*command, words->items);
  add_work_options(*command, words->work);
  add_count(*command, "--seed", words->options.seed, 0, "Seed of the random order; default 0");
  add_token_format(*command, words->options.format);
  add_scratch(*command, words->options.scratch);
  const auto add = [command](const char* name, std::string& value, const char* type,
                             const char* help) {
    command->add_option(name, value, help)->type_name(type);
  };
  add("--manifest", words->manifest, "FILE",
      "Plan the work and write the plan to this file, or read it from there");
  add("--parts", words->parts, "N", "Parts of each step, for a new manifest");
  add("--part", words->part, "I", "Do this part of the manifest");
  command->add_flag("--finish", words->finish, "Join the parts of the manifest into the output");
  // With --manifest, they are in the manifest.
  command->get_option("FILE")->required(false);
  command->get_option("--output")->required(false);
  command->footer(kShuffleFooter);
  command->callback([command, words, &exit_code] { exit_code = run(*command, *words); });
}

}  // namespace evenkeel::cli
