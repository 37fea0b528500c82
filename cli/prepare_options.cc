#include "cli/prepare_options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/number.h"
#include "cli/describe.h"
#include "cli/options.h"
#include "evenkeel/bytes.h"
#include "evenkeel/tokens.h"
#include "format/token_layout.h"
#include "prepare/items.h"

namespace evenkeel::cli {
ItemInput ItemWords::input() const {
  ItemInput input;
  std::vector<std::string> plain;
  for (const std::string& file : files) {
    const auto found = expand_token_paths(file);
    plain.insert(plain.end(), found.begin(), found.end());
  }
  input.paths = plain;
  if (!dtype.empty()) input.dtype = DType::parse(dtype);
  input.shape = shape;
  input.block_tokens = block;
  input.bos = bos;
  input.eos = eos;
  input.unit = unit.empty() ? usual_unit(input) : parse_item_unit(unit);
  return input;
}

ItemInput ItemWords::input_or_tokens(bool tokens) const {
  ItemInput found = input();
  if (tokens && found.unit == ItemUnit::kLines) {
    throw Error(ErrorKind::kInvalid, "open", "tokens were asked for, but these are lines of text")
        .in(found.paths.front())
        .hint(
            "files whose names end in .txt, .jsonl or .csv are read as text; rename them, or "
            "choose --unit documents or blocks");
  }
  if (!unit.empty() || found.unit != ItemUnit::kRows || !tokens) return found;
  found.unit = ItemUnit::kBlocks;  // no documents are known
  found.block_tokens = 1 << 15;
  return found;
}

std::vector<double> parse_numbers(const std::string& text, double least, double most,
                                  const std::string& example) {
  std::vector<double> numbers;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const auto number = parse_number<double>(text.substr(at, end - at));
    if (!number || !(*number >= least && *number <= most)) {
      throw Error(
          ErrorKind::kInvalid, "numbers",
          fmt::format("\"{}\" is not a list of numbers from {:g} to {:g}, separated by commas",
                      text, least, most))
          .hint("write them like " + example);
    }
    numbers.push_back(*number);
    at = end + 1;
  }
  return numbers;
}

void add_item_options(CLI::App& app, ItemWords& words) {
  add_files(app, words.files);
  add_parsed(
      app, "--unit", "UNIT",
      [&words](const std::string& name) {
        parse_item_unit(name);
        words.unit = name;
      },
      "rows, lines, documents or blocks; default: lines of text (.txt .jsonl .csv ...), documents "
      "of llm.c, Megatron and datatrove files, otherwise rows");
  add_parsed(
      app, "--dtype", "TYPE",
      [&words](const std::string& name) {
        DType::parse(name);
        words.dtype = name;
      },
      "Element type of a file without a header: float32, uint16, ...");
  add_parsed(
      app, "--shape", "N,...",
      [&words](const std::string& text) { words.shape = parse_shape(text); },
      "Its shape, for example -1,162");
  add_count(app, "--block", words.block, 1, "Tokens per block, for --unit blocks");
  add_token(app, "--bos", "TOKEN", words.bos,
            "The token that documents begin with, in files without an index");
  add_token(app, "--eos", "TOKEN", words.eos,
            "The token that documents end with, in files without an index");
}

Budget WorkBudget::budget() const {
  return Budget(bytes.value_or(std::min<std::uint64_t>(512_MiB, Budget().limit())));
}

void add_work_budget(CLI::App& app, WorkBudget& budget) {
  add_size(
      app, "--budget", [&budget](std::uint64_t bytes) { budget.bytes = bytes; },
      "Memory for the whole command; default 512MiB, or an eighth of the memory available if that "
      "is less");
}

void add_work_options(CLI::App& app, WorkWords& words) {
  app.add_option("-o,--output", words.output, "The file to write")->type_name("FILE")->required();
  add_work_budget(app, words.budget);
  app.add_flag("--resume", words.resume, "Continue a run that was killed");
  add_size(
      app, "--checkpoint", [&words](std::uint64_t bytes) { words.checkpoint_bytes = bytes; },
      "Bytes between two checkpoints, from which a killed run can continue; default 1GiB");
  app.add_flag("--checksums", words.checksums, "Also write OUTPUT.xxh3, for `evenkeel verify`");
  app.add_flag("--json", words.json, "Print the figures as JSON");
}

void add_scratch(CLI::App& app, std::string& folder) {
  app.add_option("--scratch", folder, "Folder for scratch files")->type_name("DIR");
}

void add_token_format(CLI::App& app, std::string& format) {
  app.add_option("--format", format,
                 "For tokens: nanogpt, llm.c, megatron, datatrove or npy; default: as in the input")
      ->type_name("NAME");
}

void add_to_json(nlohmann::ordered_json& json, ItemUnit unit, const WorkReport& report,
                 const Budget& budget, double seconds) {
  json["unit"] = item_unit_name(unit);
  json["items"] = report.items;
  json["bytes"] = report.bytes;
  json["budget_bytes"] = budget.limit();
  json["budget_peak_bytes"] = budget.peak();
  json["resumed"] = report.resumed;
  json["seconds"] = seconds;
  json["how"] = report.how;
}

std::string items_in_words(ItemUnit unit, std::uint64_t items) {
  std::string one(item_unit_name(unit));
  one.pop_back();  // the s
  return counted(items, one);
}

std::string items_in_words(ItemUnit unit, const WorkReport& report) {
  return items_in_words(unit, report.items) + ", " + format_size(report.bytes);
}

std::string speed_in_words(const WorkReport& report, double seconds) {
  const double speed = double(report.bytes) / std::max(seconds, 1e-3);
  return fmt::format("{:.1f} s, {}/s", seconds, format_size(static_cast<std::uint64_t>(speed)));
}

std::string budget_in_words(const Budget& budget) {
  return fmt::format("{}, of which {} were reserved", format_size(budget.limit()),
                     format_size(budget.peak()));
}

std::string progress_in_words(const WorkProgress& work, std::uint64_t first, double seconds) {
  constexpr double kSoonest = 1;  // the first moments say little about the rest
  const double share = std::min(1.0, double(work.done) / double(work.total));
  std::string text = fmt::format("{} {:3.0f} %  {}", bar(share), 100 * share, work.step);
  const double done = double(work.done) - double(first);
  if (done <= 0 || seconds <= kSoonest) return text;
  const double speed = done / seconds, left = std::max(0.0, double(work.total) - double(work.done));
  return text + fmt::format(", {}/s, {:.0f} s left", format_size(static_cast<std::uint64_t>(speed)),
                            left / speed);
}

std::function<void(const WorkProgress&)> WorkView::callback() {
  return [this](const WorkProgress& work) { show(work); };
}

double WorkView::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

void WorkView::show(const WorkProgress& work) {
  check_interrupt();
  if (!first_) first_ = work.done;  // not 0 in a run that was resumed
  if (!progress_.due() || work.total == 0) return;
  progress_.show(progress_in_words(work, *first_, seconds()));
}

}  // namespace evenkeel::cli
