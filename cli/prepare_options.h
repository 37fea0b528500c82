// Options of the commands that write data, and the display of their progress.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "evenkeel/prepare.h"

namespace CLI {
class App;
}

namespace evenkeel::cli {

// Files that are read as items.
struct ItemWords {
  std::vector<std::string> files;
  std::string unit, dtype;  // as typed
  std::vector<std::int64_t> shape;
  std::uint64_t block = 0;
  std::optional<std::int64_t> bos, eos;

  // Without --unit, by the first file: lines of text, documents of token files, else rows.
  ItemInput input() const;
  // The same, but tokens that have no documents are blocks of tokens and not rows.
  ItemInput input_or_tokens(bool tokens) const;
};
// "3,1": numbers from `least` to `most`. Throws Error (kInvalid); `example` is for its hint.
std::vector<double> parse_numbers(const std::string& text, double least, double most,
                                  const std::string& example);
void add_item_options(CLI::App& app, ItemWords& words);

// --budget SIZE; default 512 MiB, or less if memory is short.
struct WorkBudget {
  std::optional<std::uint64_t> bytes;
  Budget budget() const;
};
void add_work_budget(CLI::App& app, WorkBudget& budget);

// The options of all commands that write items: -o, --budget, --resume, --checkpoint, --checksums,
// --json.
struct WorkWords {
  std::string output;
  WorkBudget budget;
  bool resume = false, checksums = false, json = false;
  std::uint64_t checkpoint_bytes = std::uint64_t{1} << 30;

  template <class Options>
  void apply(Options& options) const {
    options.output = output;
    options.budget = budget.budget();
    options.resume = resume;
    options.checksums = checksums;
    options.checkpoint_bytes = checkpoint_bytes;
  }
};
void add_work_options(CLI::App& app, WorkWords& words);
// --scratch DIR, and --format NAME of token files.
void add_scratch(CLI::App& app, std::string& folder);
void add_token_format(CLI::App& app, std::string& format);

// Appends the results of the work to `json`.
void add_to_json(nlohmann::ordered_json& json, ItemUnit unit, const WorkReport& report,
                 const Budget& budget, double seconds);
std::string items_in_words(ItemUnit unit, std::uint64_t items);        // "5 rows", "1 row"
std::string items_in_words(ItemUnit unit, const WorkReport& report);   // "5 rows, 3 KiB"
std::string speed_in_words(const WorkReport& report, double seconds);  // "1.0 s, 3 KiB/s"
std::string budget_in_words(const Budget& budget);
// "███░░  60 %  writing, 3 MiB/s, 9 s left": after so many seconds, of work that began at `first`.
std::string progress_in_words(const WorkProgress& work, std::uint64_t first, double seconds);

// Shows progress and remaining time on a terminal, and ends the work on Ctrl-C.
class WorkView {
 public:
  std::function<void(const WorkProgress&)> callback();
  double seconds() const;
  void clear() { progress_.clear(); }

 private:
  void show(const WorkProgress& work);

  const InterruptGuard guard_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::optional<std::uint64_t> first_;
  Progress progress_;
};

}  // namespace evenkeel::cli
