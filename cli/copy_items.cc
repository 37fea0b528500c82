// evenkeel convert, merge, split and sample: copy items from files to files.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/prepare_options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "evenkeel/tokens.h"
#include "format/token_layout.h"

namespace evenkeel::cli {
namespace {

struct CopyWords {
  ItemWords items;
  WorkWords work;
  CopyOptions options;
  std::string format, to_dtype;  // as typed
  std::uint64_t parts = 0;
  std::vector<double> weights;
  bool tokens = false;
};

constexpr char kConvertFooter[] = R"(
Token files keep their documents if they have an index, or if --bos or --eos separates the documents.
A value that does not fit the new type is an error, which shows the value.

Examples:
  evenkeel convert features.npy -o features.raw --format raw
  evenkeel convert wide.npy -o narrow.npy --to float32
  evenkeel convert train.bin -o corpus.bin --format megatron --eos 50256
  evenkeel convert corpus.idx -o corpus.ds --format datatrove --to uint32)";
constexpr char kMergeFooter[] = R"(
Files are concatenated, or mixed with --weights: one number for each FILE argument, which may be a pattern.
At every point of the output, each FILE has contributed its share of the items to within one. The output
ends when the first FILE runs out. With --repeat, a FILE that runs out starts again, until each was used
up once.

Examples:
  evenkeel merge 'part_*.npy' -o all.npy
  evenkeel merge a.idx b.idx -o all.bin --format megatron
  evenkeel merge 'shard_*.jsonl' -o 'all_{}.jsonl' --parts 16
  evenkeel merge 'web_*.jsonl' books.jsonl -o mixed.jsonl --weights 3,1
  evenkeel merge web.idx code.idx -o mixed.bin --format megatron --weights 0.7,0.3 --repeat)";
constexpr char kSplitFooter[] = R"(
Parts are consecutive and of equal size, or of the relative sizes in --shares. Rows, lines and documents
stay whole. Shuffle first if the file has a meaningful order.

Examples:
  evenkeel split features.npy -o 'part_{}.npy' --parts 8
  evenkeel split shuffled.jsonl -o 'set_{}.jsonl' --shares 0.98,0.01,0.01)";
constexpr char kSampleFooter[] = R"(
Every set of COUNT items is equally likely. Items keep the order of the input. Rows and blocks that are
not selected are not read. Lines are counted first, so text is read twice.

Examples:
  evenkeel sample features.npy -o some.npy --count 10000 --seed 7
  evenkeel sample all.jsonl -o some.jsonl --count 1000)";

// "8,1,1" of --shares and --weights.
std::vector<double> parse_shares(const std::string& text) {
  constexpr double kLeast = 1e-12, kMost = 1e18;
  return parse_numbers(text, kLeast, kMost, "0.98,0.01,0.01 or 8,1,1");
}

std::vector<WeightedFiles> weighted_files(const CopyWords& words) {
  const std::vector<std::string>& named = words.items.files;
  if (named.size() != words.weights.size()) {
    throw Error(ErrorKind::kInvalid, "weights",
                fmt::format("there are {} weights, but {} files or patterns", words.weights.size(),
                            named.size()))
        .hint("give one weight for each; quote a pattern, so that the shell does not expand it");
  }
  std::vector<WeightedFiles> sets;
  for (std::size_t i = 0; i < named.size(); ++i) {
    sets.push_back({expand_token_paths(named[i]), words.weights[i]});
  }
  return sets;
}

int run(const CopyWords& words) {
  CopyOptions options = words.options;
  const std::string& format = words.format;
  options.input =
      words.items.input_or_tokens(words.tokens || format == "nanogpt" || format == "llm.c" ||
                                  format == "megatron" || format == "datatrove");
  words.work.apply(options);
  if (!words.to_dtype.empty()) options.dtype = DType::parse(words.to_dtype);
  constexpr std::uint64_t kMostParts = 1'000'000;
  if (words.parts > kMostParts) {
    throw Error(ErrorKind::kInvalid, "split",
                fmt::format("{} parts are too many: at most {}", with_commas(words.parts),
                            with_commas(kMostParts)));
  }
  if (words.parts > 0) options.shares.assign(words.parts, 1);
  if (!words.weights.empty()) options.sets = weighted_files(words);
  const bool rows = options.input.unit == ItemUnit::kRows;
  (rows ? options.array_format : options.format) = words.format;
  WorkView view;
  options.progress = view.callback();
  options.while_waiting = check_interrupt;
  const WorkReport report = copy_items(options);
  view.clear();
  const double seconds = view.seconds();
  if (words.work.json) {
    nlohmann::ordered_json outputs = nlohmann::ordered_json::array();
    for (const WorkOutput& one : report.outputs) {
      outputs.push_back({{"file", one.path}, {"items", one.items}});
    }
    nlohmann::ordered_json json = {{"outputs", outputs}};
    add_to_json(json, options.input.unit, report, options.budget, seconds);
    print_json(json);
    return 0;
  }
  for (const WorkOutput& one : report.outputs) {
    say(stdout, fmt::format("{}: {}\n", one.path, items_in_words(options.input.unit, one.items)));
  }
  say(stdout, fmt::format("{} in {:.1f} s; {}\n", format_size(report.bytes), seconds, report.how));
  return 0;
}

std::shared_ptr<CopyWords> add_copying(CLI::App& app, int& exit_code, const std::string& name,
                                       const std::string& help, const char* footer) {
  CLI::App* command = app.add_subcommand(name, help);
  auto words = std::make_shared<CopyWords>();
  add_item_options(*command, words->items);
  command
      ->add_option("--format", words->format,
                   "For rows: npy or raw. For tokens: nanogpt, llm.c, megatron, datatrove or npy. "
                   "Default: as in the input")
      ->type_name("NAME");
  command->add_flag("--tokens", words->tokens, "The files hold tokens, not rows");
  add_work_options(*command, words->work);
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
      "Element type of the output; default: as in the input");
}

void add_parts(CLI::App& command, const std::shared_ptr<CopyWords>& words) {
  CLI::Option* parts =
      add_count(command, "--parts", words->parts, 1,
                "Number of parts of equal size; the name of the output must contain {}");
  add_parsed(
      command, "--shares", "A,B,...",
      [words](const std::string& text) { words->options.shares = parse_shares(text); },
      "Parts of these relative sizes")
      ->excludes(parts);
}

}  // namespace

void add_convert(CLI::App& app, int& exit_code) {
  const auto words = add_copying(
      app, exit_code, "convert",
      "Convert to another format or element type; values are checked for range", kConvertFooter);
  add_target_dtype(app, "convert", words);
}

void add_merge(CLI::App& app, int& exit_code) {
  const auto words = add_copying(
      app, exit_code, "merge", "Merge several files into one or into parts, optionally by weights",
      kMergeFooter);
  add_target_dtype(app, "merge", words);
  CLI::App& command = *app.get_subcommand("merge");
  add_parts(command, words);
  CLI::Option* weights = add_parsed(
      command, "--weights", "A,B,...",
      [words](const std::string& text) { words->weights = parse_shares(text); },
      "Mix the files in these proportions, by items");
  command
      .add_flag("--repeat", words->options.repeat,
                "Files that run out start again, until each was used up once")
      ->needs(weights);
}

void add_split(CLI::App& app, int& exit_code) {
  const auto words =
      add_copying(app, exit_code, "split", "Split one or more files into parts", kSplitFooter);
  CLI::App& command = *app.get_subcommand("split");
  add_parts(command, words);
  command.callback([words, &exit_code] {
    if (words->parts == 0 && words->options.shares.empty()) {
      throw CLI::ValidationError("split", "give --parts N or --shares A,B,...");
    }
    exit_code = run(*words);
  });
}

void add_sample(CLI::App& app, int& exit_code) {
  const auto words = add_copying(app, exit_code, "sample", "Choose items at random", kSampleFooter);
  CLI::App& command = *app.get_subcommand("sample");
  add_count(command, "--count", words->options.sample, 0, "Number of items")->required();
  add_count(command, "--seed", words->options.seed, 0, "Seed of the random choice; default 0");
}

}  // namespace evenkeel::cli
