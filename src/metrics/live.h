// What is open in this process: arrays, weights, loaders. For metrics_text and for `evenkeel top`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/live_budgets.h"
#include "evenkeel/array.h"

namespace evenkeel {

struct LiveFigures {
  ArrayStats reads;                 // of arrays and weights
  std::uint64_t batches = 0;        // of loaders and chunks: handed out
  std::uint64_t batch_wait_ns = 0;  // the program waited for them
};

enum class LiveKind : std::uint8_t { kArray, kWeights, kLoader, kChunks };

struct LiveLabels {
  std::string path;         // of the first file
  std::uint64_t files = 0;  // in all
  std::string format, engine;
  std::string batch;  // of loaders: "32 x 1,024 tokens"
};

// An object that is open. Called from any thread, under the mutex of all live objects: must not
// wait, nor open or close such an object itself.
class LiveObject {
 public:
  // Empty where it would have to wait: the figures of the last time then stand.
  virtual std::optional<LiveFigures> live_figures() const = 0;
  virtual LiveLabels live_labels() const = 0;

 protected:
  ~LiveObject() = default;
};

// An object's entry among those that are open. It keeps nothing alive. Declare it before the
// members that hold memory: it is then destroyed after them, and what `evenkeel top` shows from
// then on is what was given back.
class LiveEntry {
 public:
  LiveEntry() = default;
  ~LiveEntry();
  LiveEntry(const LiveEntry&) = delete;
  LiveEntry& operator=(const LiveEntry&) = delete;
  // When the object is complete: the end of its constructor.
  void begin(LiveKind kind, const LiveObject& object) noexcept;
  // While it is still complete: the beginning of its destructor. Its counters stay in the sums.
  void end() noexcept;

 private:
  std::uint64_t number_ = 0;  // 0: not begun
  bool begun_ = false;
};

// The sums of a process. Counters include objects that were closed; what is held now does not.
struct ProcessFigures {
  std::uint64_t arrays = 0, loaders = 0, budgets = 0;  // open now; weights are among the arrays
  std::uint64_t limit = 0, in_use = 0, cached = 0, peak = 0;  // of all budgets
  LiveFigures work;
};

struct LiveReport {
  struct Object {
    std::uint64_t number;
    LiveKind kind;
    LiveLabels labels;
    LiveFigures figures;
  };
  std::vector<Object> objects;  // in the order in which they were opened
  std::vector<BudgetFigures> budgets;
  ProcessFigures process;
};
LiveReport live_report();

// Called where work was done: after a read, with a batch that is handed out. Brings the page of
// this process up to date if that was 20 ms ago or more. Costs a look at a coarse clock otherwise.
// Never fails. Not to be called with locks held.
void note_work() noexcept;

}  // namespace evenkeel
