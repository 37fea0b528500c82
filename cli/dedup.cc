// evenkeel dedup: removes exact duplicates.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/describe.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/prepare_options.h"
#include "cli/table.h"
#include "cli/terminal.h"

namespace evenkeel::cli {
namespace {

struct DedupWords {
  ItemWords items;
  WorkWords work;
  DedupOptions options;
};

constexpr char kDedupFooter[] = R"(
Removes rows, lines or documents that are identical byte for byte, compared by 128-bit hashes. The first
copy stays, and the order is kept. The input is read twice. Scratch files take 24 bytes per item, beside
the output or in the --scratch folder. Continue a killed run with --resume.

Examples:
  evenkeel dedup all.jsonl -o unique.jsonl
  evenkeel dedup 'part_*.npy' -o unique.npy --budget 1GiB
  evenkeel dedup corpus.idx -o unique.bin --format megatron
  evenkeel dedup train.bin --eos 50256 -o unique.bin --json)";

int run(const DedupWords& words) {
  DedupOptions options = words.options;
  options.input = words.items.input();
  words.work.apply(options);
  WorkView view;
  options.progress = view.callback();
  options.while_waiting = check_interrupt;
  const WorkReport report = dedup(options);
  view.clear();
  const double seconds = view.seconds();
  const ItemUnit unit = options.input.unit;
  const std::uint64_t all = report.items + report.duplicates;
  if (words.work.json) {
    nlohmann::ordered_json json = {
        {"output", options.output}, {"input_items", all}, {"duplicates", report.duplicates}};
    add_to_json(json, unit, report, options.budget, seconds);
    print_json(json);
    return 0;
  }
  const double share = all == 0 ? 0 : 100 * double(report.duplicates) / double(all);
  say(stdout, facts({{"output", options.output},
                     {"items", items_in_words(unit, report)},
                     {"left out",
                      fmt::format("{} of {} ({:.2f} %)", counted(report.duplicates, "duplicate"),
                                  items_in_words(unit, all), share)},
                     {"time", speed_in_words(report, seconds)},
                     {"budget", budget_in_words(options.budget)},
                     {"how", report.how}}));
  return 0;
}

}  // namespace

void add_dedup(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("dedup", "Remove exact duplicates of rows, lines or documents");
  auto words = std::make_shared<DedupWords>();
  add_item_options(*command, words->items);
  add_work_options(*command, words->work);
  add_token_format(*command, words->options.format);
  add_scratch(*command, words->options.scratch);
  command->footer(kDedupFooter);
  command->callback([words, &exit_code] { exit_code = run(*words); });
}

}  // namespace evenkeel::cli
