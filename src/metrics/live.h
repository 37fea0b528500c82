// The open objects of this process: arrays, weights, loaders. For metrics_text and `evenkeel top`.
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
  std::uint64_t batches = 0;        // handed out by loaders and chunks
  std::uint64_t batch_wait_ns = 0;  // time that the program waited for them
};

// What was counted since `before`.
ArrayStats reads_since(ArrayStats now, const ArrayStats& before);

enum class LiveKind : std::uint8_t { kArray, kWeights, kLoader, kChunks };

struct LiveLabels {
  std::string path;         // of the first file
  std::uint64_t files = 0;  // number of files
  std::string format, engine;
  std::string batch;  // of loaders: "32 x 1,024 tokens"
};

// An open object. Its members are called from any thread while the mutex of all live objects is
// held. They must not wait, and must not open or close a live object.
class LiveObject {
 public:
  // What was counted in this process. A child calls it right after fork, so that an object can note
  // what its parent has counted. Empty if it would have to wait. Then the last figures are used.
  virtual std::optional<LiveFigures> live_figures() const = 0;
  virtual LiveLabels live_labels() const = 0;

 protected:
  ~LiveObject() = default;
};

// The entry of an object in the list of open objects. It keeps nothing alive. Declare it before the
// members that hold memory. Then it is destroyed after them, and `evenkeel top` no longer shows
// that memory as in use.
class LiveEntry {
 public:
  LiveEntry() = default;
  ~LiveEntry();
  LiveEntry(const LiveEntry&) = delete;
  LiveEntry& operator=(const LiveEntry&) = delete;
  // Call it when the object is complete, at the end of its constructor.
  void begin(LiveKind kind, const LiveObject& object) noexcept;
  // Call it while the object is still complete, at the beginning of its destructor. Its counters
  // stay in the sums.
  void end() noexcept;

 private:
  std::uint64_t number_ = 0;  // 0: not begun
  bool begun_ = false;
};

// The sums of a process. Counters include closed objects; gauges do not.
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

// Called after a read, and when a batch is handed out. Updates the page of this process if the last
// update was at least 20 ms ago. Otherwise it only reads a coarse clock. Never fails. The caller
// must not hold locks.
void note_work() noexcept;

}  // namespace evenkeel
