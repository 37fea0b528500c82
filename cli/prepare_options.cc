#include "cli/prepare_options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/number.h"
#include "cli/options.h"
#include "evenkeel/bytes.h"
#include "evenkeel/tokens.h"
#include "format/token_layout.h"

namespace evenkeel::cli {
namespace {

void add_token(CLI::App& app, const std::string& name, std::optional<std::int64_t>& token,
               const std::string& help) {
  const auto parse = [&token](const std::string& text) {
    const auto number = parse_number<std::int64_t>(text);
    if (!number) throw Error(ErrorKind::kInvalid, "token", fmt::format("\"{}\" is no token", text));
    token = *number;
  };
  add_parsed(app, name, "TOKEN", parse, help);
}

bool is_text(const std::string& path) {
  constexpr std::string_view kEndings[] = {".txt", ".jsonl", ".ndjson", ".csv", ".tsv", ".md"};
  return std::ranges::any_of(kEndings, [&](std::string_view end) { return path.ends_with(end); });
}

// Files that are known to hold tokens and documents, by their own words.
bool has_documents(const std::vector<std::string>& paths) {
  try {
    const std::string format = read_token_layout(paths, {}).layout.format;
    return format == "llm.c" || format == "megatron" || format == "datatrove";
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

ItemInput ItemWords::input() const {
  ItemInput input;
  std::vector<std::string> plain;
  for (const std::string& file : files) {
    const auto found = expand_token_paths(file);
    plain.insert(plain.end(), found.begin(), found.end());
  }
  input.paths = plain;
  const bool text = is_text(plain.front());
  const bool indexed = !text && dtype.empty() && has_documents(plain);
  if (!unit.empty()) {
    input.unit = parse_item_unit(unit);
  } else if (block > 0) {
    input.unit = ItemUnit::kBlocks;
  } else if (bos || eos || indexed) {
    input.unit = ItemUnit::kDocuments;
  } else if (text) {
    input.unit = ItemUnit::kLines;
  }
  if (!dtype.empty()) input.dtype = DType::parse(dtype);
  input.shape = shape;
  input.block_tokens = block;
  input.bos = bos;
  input.eos = eos;
  return input;
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
      "of "
      "llm.c, Megatron and datatrove files, else rows");
  add_parsed(
      app, "--dtype", "TYPE",
      [&words](const std::string& name) {
        DType::parse(name);
        words.dtype = name;
      },
      "What a file without a header holds: float32, uint16, ...");
  add_parsed(
      app, "--shape", "N,...",
      [&words](const std::string& text) { words.shape = parse_shape(text); },
      "Its shape, for example -1,162");
  add_count(app, "--block", words.block, 1, "Tokens of a block, for --unit blocks");
  add_token(app, "--bos", words.bos,
            "The token that documents begin with, in files without an index");
  add_token(app, "--eos", words.eos,
            "The token that documents end with, in files without an index");
}

Budget WorkBudget::budget() const {
  return Budget(bytes.value_or(std::min<std::uint64_t>(512_MiB, Budget().limit())));
}

void add_work_budget(CLI::App& app, WorkBudget& budget) {
  add_size(
      app, "--budget", [&budget](std::uint64_t bytes) { budget.bytes = bytes; },
      "Memory for all of it; default 512MiB, or an eighth of the memory available if that is less");
}

std::function<void(const WorkProgress&)> WorkView::callback() {
  return [this](const WorkProgress& work) { show(work); };
}

double WorkView::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

void WorkView::show(const WorkProgress& work) {
  check_interrupt();
  if (!first_) first_ = work.done;  // of a run that was resumed
  if (!progress_.due() || work.total == 0) return;
  const double share = double(work.done) / double(work.total), passed = seconds();
  const double speed = passed > 0 ? double(work.done - *first_) / passed : 0;
  std::string text = fmt::format("{} {:3.0f} %  {}", bar(share), 100 * share, work.step);
  if (speed > 0 && passed > 1) {
    text += fmt::format(", {}/s, {:.0f} s left", format_size(static_cast<std::uint64_t>(speed)),
                        double(work.total - work.done) / speed);
  }
  progress_.show(text);
}

}  // namespace evenkeel::cli
