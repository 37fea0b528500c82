// evenkeel convert, merge, split and sample: items from files to files.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/number.h"
#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/prepare_options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "format/token_layout.h"

namespace evenkeel::cli {
namespace {

struct CopyWords {
  ItemWords items;
  WorkBudget budget;
  CopyOptions options;
  std::string format, to_dtype;  // as typed
  std::uint64_t parts = 0;
  bool json = false, tokens = false;
};

constexpr char kConvertFooter[] = R"(
Token files are converted with their documents where they have an index, or --bos or --eos tells them
apart. A value that does not fit the new type is an error that names it.

Examples:
  evenkeel convert features.npy -o features.raw --format raw
  evenkeel convert wide.npy -o narrow.npy --to float32
  evenkeel convert train.bin -o corpus.bin --format megatron --eos 50256
  evenkeel convert corpus.idx -o corpus.ds --format datatrove --to uint32)";
constexpr char kMergeFooter[] = R"(
Examples:
  evenkeel merge 'part_*.npy' -o all.npy
  evenkeel merge a.idx b.idx -o all.bin --format megatron
  evenkeel merge 'shard_*.jsonl' -o all.jsonl)";
constexpr char kSplitFooter[] = R"(
Parts are of the same size, or of the sizes that --shares gives, and follow each other; rows, lines and
documents stay whole. Shuffle first if the order of the file means something.

Examples:
  evenkeel split features.npy -o 'part_{}.npy' --parts 8
  evenkeel split shuffled.jsonl -o 'set_{}.jsonl' --shares 0.98,0.01,0.01)";
constexpr char kSampleFooter[] = R"(
Each set of so many items is equally likely, by the seed; they keep the order of the input. Rows and
blocks that are not taken are not read. Lines are counted first, so text is read twice.

Examples:
  evenkeel sample features.npy -o some.npy --count 10000 --seed 7
  evenkeel sample all.jsonl -o some.jsonl --count 1000)";

// Tokens if it is said so, by --tokens, the format or the options of documents; or by the file.
ItemInput copied_input(const CopyWords& words) {
  ItemInput input = words.items.input();
  const std::string& format = words.format;
  const bool tokens = words.tokens || format == "nanogpt" || format == "llm.c" ||
                      format == "megatron" || format == "datatrove";
  if (!words.items.unit.empty() || input.unit != ItemUnit::kRows || !tokens) return input;
  input.unit = ItemUnit::kBlocks;  // no documents are known
  input.block_tokens = 1 << 15;
  return input;
}

int run(const CopyWords& words) {
  CopyOptions options = words.options;
  options.input = copied_input(words);
  options.budget = words.budget.budget();
  if (!words.to_dtype.empty()) options.dtype = DType::parse(words.to_dtype);
  if (words.parts > 0) options.shares.assign(words.parts, 1);
  const bool rows = options.input.unit == ItemUnit::kRows;
  (rows ? options.array_format : options.format) = words.format;
  WorkView view;
  options.progress = view.callback();
  const WorkReport report = copy_items(options);
  view.clear();
  const double seconds = view.seconds();
  if (words.json) {
    nlohmann::ordered_json outputs = nlohmann::ordered_json::array();
    for (const WorkOutput& one : report.outputs) {
      outputs.push_back({{"file", one.path}, {"items", one.items}});
    }
    print_json({{"outputs", outputs},
                {"unit", item_unit_name(options.input.unit)},
                {"items", report.items},
                {"bytes", report.bytes},
                {"budget_bytes", options.budget.limit()},
                {"budget_peak_bytes", options.budget.peak()},
                {"resumed", report.resumed},
                {"seconds", seconds},
                {"how", report.how}});
    return 0;
  }
  for (const WorkOutput& one : report.outputs) {
    say(stdout, fmt::format("{}: {} {}\n", one.path, with_commas(one.items),
                            item_unit_name(options.input.unit)));
  }
  say(stdout, fmt::format("{} in {:.1f} s; {}\n", format_size(report.bytes), seconds, report.how));
  return 0;
}

std::vector<double> parse_shares(const std::string& text) {
  std::vector<double> shares;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const auto share = parse_number<double>(text.substr(at, end - at));
    if (!share || !(*share > 0 && *share < 1e18)) {
      throw Error(ErrorKind::kInvalid, "shares", fmt::format("\"{}\" are no shares", text))
          .hint("write them like 0.98,0.01,0.01 or 8,1,1");
    }
    shares.push_back(*share);
    at = end + 1;
  }
  return shares;
}

std::shared_ptr<CopyWords> add_copying(CLI::App& app, int& exit_code, const std::string& name,
                                       const std::string& help, const char* footer) {
  CLI::App* command = app.add_subcommand(name, help);
  auto words = std::make_shared<CopyWords>();
  add_item_options(*command, words->items);
  command->add_option("-o,--output", words->options.output, "The file to write")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--format", words->format,
                   "For rows: npy or raw. For tokens: nanogpt, llm.c, megatron, datatrove or npy. "
                   "Default: as the input")
      ->type_name("NAME");
  command->add_flag("--tokens", words->tokens, "The files hold tokens, not rows");
  add_work_budget(*command, words->budget);
  command->add_flag("--resume", words->options.resume, "Go on where an earlier run was killed");
  add_size(
      *command, "--checkpoint",
      [words](std::uint64_t bytes) { words->options.checkpoint_bytes = bytes; },
      "Bytes after which a killed run can go on; default 1GiB");
  command->add_flag("--checksums", words->options.checksums,
                    "Write OUTPUT.xxh3, too, for `evenkeel verify`");
  command->add_flag("--json", words->json, "Print the figures as JSON");
  command->footer(footer);
  command->callback([words, &exit_code] { exit_code = run(*words); });
  return words;
}

void add_target_dtype(CLI::App& app, const std::string& name,
                      const std::shared_ptr<CopyWords>& words) {
  add_parsed(
      *app.get_subcommand(name), "--to", "TYPE",
      [words](const std::string& text) {
        DType::parse(text);
        words->to_dtype = text;
      },
      "The type of the elements that are written; default: as they are");
}

}  // namespace

void add_convert(CLI::App& app, int& exit_code) {
  const auto words =
      add_copying(app, exit_code, "convert", "Another format or element type, checked for range",
                  kConvertFooter);
  add_target_dtype(app, "convert", words);
}

void add_merge(CLI::App& app, int& exit_code) {
  const auto words = add_copying(app, exit_code, "merge", "Several files into one", kMergeFooter);
  add_target_dtype(app, "merge", words);
}

void add_split(CLI::App& app, int& exit_code) {
  const auto words =
      add_copying(app, exit_code, "split", "One file, or several, into parts", kSplitFooter);
  CLI::App& command = *app.get_subcommand("split");
  CLI::Option* parts = add_count(command, "--parts", words->parts, 1, "So many parts of one size");
  add_parsed(
      command, "--shares", "A,B,...",
      [words](const std::string& text) { words->options.shares = parse_shares(text); },
      "Parts of these relative sizes")
      ->excludes(parts);
}

void add_sample(CLI::App& app, int& exit_code) {
  const auto words =
      add_copying(app, exit_code, "sample", "Some items, chosen at random", kSampleFooter);
  CLI::App& command = *app.get_subcommand("sample");
  add_parsed(
      command, "--count", "N",
      [words](const std::string& text) {
        const auto number = parse_number<std::uint64_t>(text);
        if (!number)
          throw Error(ErrorKind::kInvalid, "count", fmt::format("\"{}\" is no number", text));
        words->options.sample = *number;
      },
      "How many")
      ->required();
  add_count(command, "--seed", words->options.seed, 0, "Which of the random sets; default 0");
}

}  // namespace evenkeel::cli
