// evenkeel explain: which tokens, files and bytes a batch is cut from.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/visible.h"
#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/loader_options.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"

namespace evenkeel::cli {
namespace {

struct Explain {
  LoaderWords words;
  std::uint64_t step = 0;
  bool json = false;
};

constexpr char kExplainFooter[] = R"(
Examples:
  evenkeel explain train.bin --step 0
  evenkeel explain corpus.idx --documents packed --step 7
  evenkeel explain 'fineweb_train_*.bin' --order shuffled --seed 1337 --step 120000 --rank 3 --world 8)";

// "17, 18, 19 and 5 more"
std::string documents_text(const CropOrigin& origin) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, origin.documents.size()); ++i) {
    text += (i > 0 ? ", " : "") + with_commas(origin.documents[i].document);
  }
  if (origin.documents.size() <= kShown) return text;
  return text + fmt::format(" and {} more", origin.documents.size() - kShown);
}

int run(const Explain& explain) {
  LoaderOptions options = explain.words.options();
  const Tokens tokens = explain.words.open();
  options.prefetch = 0;
  const TokenLoader loader(tokens, options);
  const auto origins = loader.explain(explain.step);

  if (explain.json) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const CropOrigin& origin : origins) {
      rows.push_back({{"sample", origin.sample},
                      {"epoch", origin.epoch},
                      {"start", origin.start},
                      {"file", without_query(origin.path)},
                      {"offset", origin.offset}});
      if (options.documents.mode == DocumentMode::kNone) continue;
      nlohmann::ordered_json documents = nlohmann::ordered_json::array();
      for (const CropOrigin::Document& one : origin.documents) {
        documents.push_back({{"document", one.document},
                             {"from", one.from},
                             {"start", one.start},
                             {"tokens", one.tokens}});
      }
      rows.back()["documents"] = std::move(documents);
    }
    print_json({{"step", explain.step},
                {"order", crop_order_name(options.order)},
                {"seed", options.seed},
                {"rank", options.rank},
                {"world", options.world},
                {"epoch_samples", loader.epoch_samples()},
                {"rows", rows}});
    return 0;
  }
  const bool with_documents = options.documents.mode != DocumentMode::kNone;
  std::vector<std::string> titles{"file", "byte", "first token", "epoch", "sample"};
  if (with_documents) titles.emplace_back("documents");
  Table table(titles);
  for (const CropOrigin& origin : origins) {
    std::vector<std::string> cells{visible(origin.path), with_commas(origin.offset),
                                   with_commas(origin.start), with_commas(origin.epoch),
                                   with_commas(origin.sample)};
    if (with_documents) cells.push_back(documents_text(origin));
    table.add(cells);
  }
  say(stdout, fmt::format("step {}, order {}, seed {}, rank {} of {}: {} rows of {} tokens\n\n{}",
                          explain.step, crop_order_name(options.order), options.seed, options.rank,
                          options.world, origins.size(), options.block_size, table.text()));
  next_command(fmt::format("evenkeel batches{} --from {} --steps 1 --print", explain.words.words(),
                           explain.step),
               "the tokens themselves");
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "explain", "Show which tokens, files and bytes a training batch is cut from");
  auto explain = std::make_shared<Explain>();
  add_loader_options(*command, explain->words);
  add_count(*command, "--step", explain->step, 0, "The step; default 0");
  command->add_flag("--json", explain->json, "Print it as JSON");
  command->footer(kExplainFooter);
  command->callback([explain, &exit_code] { exit_code = run(*explain); });
}

}  // namespace evenkeel::cli
