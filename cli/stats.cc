// evenkeel stats: statistics of files of any size.
#include "evenkeel/stats.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/visible.h"
#include "cli/commands.h"
#include "cli/describe.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/prepare_options.h"
#include "cli/profile_report.h"
#include "cli/stats_page.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "prepare/input_files.h"

namespace evenkeel::cli {
namespace {

struct StatsWords {
  ItemWords items;
  WorkBudget budget;
  StatsOptions options;
  std::string html;
  bool json = false, tokens = false;
};

constexpr char kStatsFooter[] = R"(
Arrays: minimum, maximum, mean, variance, quantiles, NaN and infinities of each column. Token files: how
often each token occurs, and the lengths of documents. Text: the lengths of lines. The files are read
once. Quantiles and histograms are estimates if there are more numbers than --sketch; the output says how
exact they are. All other figures are exact. A killed run that had --state continues with --resume.

Examples:
  evenkeel stats features.npy
  evenkeel stats features.npy --html features.html
  evenkeel stats corpus.idx --top 50
  evenkeel stats train.bin --tokens --eos 50256 --json
  evenkeel stats all.jsonl
  evenkeel stats features.npy --state features.state --resume)";

nlohmann::ordered_json to_json(const NumberStats& stats, const StatsOptions& options) {
  nlohmann::ordered_json json = {{"count", stats.count},
                                 {"nan", stats.nan},
                                 {"positive_infinity", stats.positive_infinity},
                                 {"negative_infinity", stats.negative_infinity}};
  if (stats.count == 0) return json;
  json["min"] = stats.min;
  json["max"] = stats.max;
  json["mean"] = stats.mean;
  json["variance"] = stats.variance;
  nlohmann::ordered_json quantiles = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < stats.quantiles.size(); ++i) {
    quantiles.push_back({{"q", options.quantiles[i]}, {"value", stats.quantiles[i]}});
  }
  json["quantiles"] = std::move(quantiles);
  nlohmann::ordered_json bins = nlohmann::ordered_json::array();
  for (const HistogramBin& bin : stats.histogram) {
    bins.push_back({{"begin", bin.begin}, {"end", bin.end}, {"count", bin.count}});
  }
  json["histogram"] = {{"bins", std::move(bins)}, {"below", stats.below}, {"above", stats.above}};
  return json;
}

nlohmann::ordered_json to_json(const StatsReport& report, const StatsOptions& options,
                               double seconds) {
  nlohmann::ordered_json json = {{"files", options.input.paths},
                                 {"unit", item_unit_name(options.input.unit)},
                                 {"items", report.items},
                                 {"bytes", report.bytes}};
  if (options.input.unit == ItemUnit::kRows) {
    nlohmann::ordered_json columns = nlohmann::ordered_json::array();
    for (const NumberStats& one : report.columns) columns.push_back(to_json(one, options));
    json["columns"] = std::move(columns);
  }
  if (report.tokens > 0) {
    nlohmann::ordered_json top = nlohmann::ordered_json::array();
    for (const TokenCount& one : report.most_frequent) {
      top.push_back({{"token", one.token}, {"count", one.count}});
    }
    json["tokens"] = {{"count", report.tokens},
                      {"distinct", report.distinct},
                      {"uncounted", report.uncounted},
                      {"most_frequent", std::move(top)}};
    if (report.largest) json["tokens"]["largest"] = *report.largest;
  }
  if (report.lengths) json["lengths"] = to_json(*report.lengths, options);
  json["rank_error"] = report.rank_error;
  json["budget_bytes"] = options.budget.limit();
  json["budget_peak_bytes"] = options.budget.peak();
  json["resumed"] = report.resumed;
  json["seconds"] = seconds;
  return json;
}

std::string table_of(const std::vector<std::pair<std::string, const NumberStats*>>& rows,
                     const StatsOptions& options) {
  std::vector<std::string> head = {"", "min", "mean", "deviation"};
  for (const double q : options.quantiles) head.push_back(quantile_name(q));
  for (const char* name : {"max", "NaN", "inf"}) head.push_back(name);
  Table table(std::move(head));
  for (const auto& [name, stats] : rows) {
    std::vector<std::string> row = {name};
    const bool any = stats->count > 0;
    const auto add = [&](double value) { row.push_back(any ? number_text(value) : "-"); };
    add(stats->min);
    add(stats->mean);
    add(std::sqrt(stats->variance));
    for (std::size_t i = 0; i < options.quantiles.size(); ++i) add(any ? stats->quantiles[i] : 0);
    add(stats->max);
    row.push_back(with_commas(stats->nan));
    row.push_back(with_commas(stats->positive_infinity + stats->negative_infinity));
    table.add(std::move(row));
  }
  return table.text();
}

using Facts = std::vector<std::pair<std::string, std::string>>;

Facts facts_of(const StatsReport& report, const StatsOptions& options, double seconds) {
  const ItemUnit unit = options.input.unit;
  Facts lines;
  const std::string size = format_size(report.bytes);
  if (unit == ItemUnit::kBlocks) {
    lines.emplace_back("tokens", fmt::format("{}, {}", with_commas(report.tokens), size));
  } else {
    lines.emplace_back(std::string(item_unit_name(unit)),
                       fmt::format("{}, {}", with_commas(report.items), size));
  }
  if (unit == ItemUnit::kDocuments) lines.emplace_back("tokens", with_commas(report.tokens));
  if (unit == ItemUnit::kRows) lines.emplace_back("columns", with_commas(report.columns.size()));
  if (report.largest) {
    lines.emplace_back("vocabulary", fmt::format("{} different tokens, the largest is {}",
                                                 with_commas(report.distinct), *report.largest));
  }
  if (report.uncounted > 0) {
    lines.emplace_back("not counted",
                       fmt::format("{} tokens: negative, 2^32 or more, or too many different ones",
                                   with_commas(report.uncounted)));
  }
  std::uint64_t most = report.lengths ? report.lengths->count : 0;
  for (const NumberStats& one : report.columns) most = std::max(most, one.count);
  if (most > options.sketch) {
    lines.emplace_back("quantiles", fmt::format("right to within {:.2f} % of all numbers",
                                                100 * report.rank_error));
  } else {
    lines.emplace_back("quantiles", "exact");
  }
  lines.emplace_back("time", fmt::format("{:.1f} s, {}/s", seconds,
                                         format_size(static_cast<std::uint64_t>(
                                             double(report.bytes) / std::max(seconds, 1e-3)))));
  return lines;
}

void print_report(const StatsReport& report, const StatsOptions& options, const Facts& lines) {
  constexpr std::size_t kMostRows = 40;
  std::string text = facts(lines);
  std::vector<std::pair<std::string, const NumberStats*>> rows;
  if (report.lengths) {
    const bool lines_of_text = options.input.unit == ItemUnit::kLines;
    rows.emplace_back(lines_of_text ? "bytes of a line" : "tokens of a document", &*report.lengths);
  }
  for (std::size_t i = 0; i < std::min(report.columns.size(), kMostRows); ++i) {
    rows.emplace_back(fmt::format("column {}", i), &report.columns[i]);
  }
  if (!rows.empty()) text += "\n" + table_of(rows, options);
  if (report.columns.size() > kMostRows) {
    text += fmt::format("and {} more columns: see --json or --html\n",
                        with_commas(report.columns.size() - kMostRows));
  }
  if (!report.most_frequent.empty()) {
    Table table({"token", "count", "share"});
    for (const TokenCount& one : report.most_frequent) {
      table.add({std::to_string(one.token), with_commas(one.count),
                 fmt::format("{:.3f} %", 100 * double(one.count) / double(report.tokens))});
    }
    text += "\n" + table.text();
  }
  say(stdout, text);
}

int run(const StatsWords& words) {
  StatsOptions options = words.options;
  options.input = words.items.input_or_tokens(words.tokens);
  options.budget = words.budget.budget();
  if (words.json && words.html == "-") {
    throw CLI::ValidationError("--html -", "excludes --json: both write to stdout");
  }
  if (!words.html.empty()) {
    require_report_apart(all_files(options.input), words.html);
    require_writable_output(words.html);
  }
  WorkView view;
  options.progress = view.callback();
  const StatsReport report = stats(options);
  view.clear();
  const double seconds = view.seconds();
  const Facts lines = facts_of(report, options, seconds);
  if (!words.html.empty()) {
    StatsPage page;
    page.title = describe_files(options.input.paths);
    page.facts = lines;
    page.quantiles = options.quantiles;
    page.length_unit =
        options.input.unit == ItemUnit::kLines ? "bytes of a line" : "tokens of a document";
    write_output(words.html, stats_html(page, report));
    if (words.html != "-") say(stderr, fmt::format("page: {}\n", visible(words.html)));
  }
  if (words.json) {
    print_json(to_json(report, options, seconds));
  } else if (words.html != "-") {
    print_report(report, options, lines);
  }
  return 0;
}

}  // namespace

void add_stats(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "stats",
      "Compute ranges, means, quantiles and histograms of columns; count tokens; measure lengths");
  auto words = std::make_shared<StatsWords>();
  add_item_options(*command, words->items);
  command->add_flag("--tokens", words->tokens, "The files hold tokens, not rows");
  add_parsed(
      *command, "--quantiles", "A,B,...",
      [words](const std::string& text) {
        words->options.quantiles = parse_numbers(text, 0, 1, "0.25,0.5,0.75");
      },
      "Which quantiles, from 0 to 1; default 0.01,0.05,0.25,0.5,0.75,0.95,0.99");
  add_count(*command, "--sketch", words->options.sketch, 8,
            "Numbers that are kept for each column to estimate quantiles; default 1024");
  add_count(*command, "--bins", words->options.bins, 1,
            "Bars per histogram, at most 10,000; default 40");
  add_count(*command, "--top", words->options.top, 0,
            "How many of the most frequent tokens to list; default 20");
  add_work_budget(*command, words->budget);
  CLI::Option* state = command
                           ->add_option("--state", words->options.state,
                                        "A file for checkpoints; it is removed at the end")
                           ->type_name("FILE");
  command->add_flag("--resume", words->options.resume, "Continue a run that was killed")
      ->needs(state);
  add_size(
      *command, "--checkpoint",
      [words](std::uint64_t bytes) { words->options.checkpoint_bytes = bytes; },
      "Bytes between two checkpoints, from which a killed run can continue; default 1GiB");
  command->add_option("--html", words->html, "Write a page with histograms; - for stdout")
      ->type_name("FILE");
  command->add_flag("--json", words->json, "Print the figures as JSON");
  command->footer(kStatsFooter);
  command->callback([words, &exit_code] { exit_code = run(*words); });
}

}  // namespace evenkeel::cli
