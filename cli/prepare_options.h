// Options of the commands that make data, and how their work is shown.
#pragma once

#include <cstdint>
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
};
void add_item_options(CLI::App& app, ItemWords& words);

// --budget SIZE of work that is done here; default 512 MiB, or less where memory is short.
struct WorkBudget {
  std::optional<std::uint64_t> bytes;
  Budget budget() const;
};
void add_work_budget(CLI::App& app, WorkBudget& budget);

// Shows progress, share and time left on a terminal, and ends the work on Ctrl-C.
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
