// The order `blocks` in a loader: the sizes of blocks, and the windows that samples are copied
// from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "array/impl.h"
#include "array/window_reader.h"
#include "engine/engine.h"
#include "loader/ragged.h"
#include "loader/row_order.h"
#include "loader/schedule.h"

namespace evenkeel {

// What determines the blocks of a loader.
struct LoaderBlocks {
  BlockOptions given;  // numbers that are 0 are chosen automatically
  std::uint64_t sample_bytes = 1;
  std::uint64_t budget = 0;            // bytes
  std::vector<std::uint64_t> samples;  // of each set
};
// Chooses the same sizes for all sets of a mixture, which share the budget evenly. Throws Error
// (kInvalid) with the numbers if a window would be smaller than a step, or if the world does not
// divide the streams.
BlockOptions choose_blocks(const LoaderBlocks& blocks, const StepOptions& steps);

// Windows of the fields that are not mapped, with one reader for each field and set. Samples of
// mapped fields are taken from the mapping. Not thread-safe unless said otherwise.
class LoaderWindows {
 public:
  using Positions = std::vector<std::uint64_t>;
  struct Set {
    std::shared_ptr<SharedOrder> order;  // if it is not kBlocks, there are no windows
    SampleShape shape;                   // in the arrays of all fields
    std::uint64_t repeat = 0;            // epochs after which it begins again; 0: never
  };

  LoaderWindows(const Steps& steps, std::vector<Set> sets);

  // A field: an array, or rows of different lengths, which belong to the first set.
  struct Field {
    std::shared_ptr<Array::Impl> array;
    RaggedField* ragged = nullptr;

    explicit Field(std::shared_ptr<Array::Impl> rows) : array(std::move(rows)) {}
    explicit Field(RaggedField* rows) : array(rows->arrays().offsets), ragged(rows) {}
    // Whether its rows are taken from a mapping.
    bool mapped() const;
    bool stop_mapping() const;  // for one of its arrays
  };
  // Arrays that are mapped because they fit the budget are read instead if the windows of others
  // need the memory. Throws Error (kBudget, kInvalid) as WindowReader does.
  void open(std::vector<Field> fields);
  bool any() const;
  bool has(std::size_t field) const { return field < has_.size() && has_[field]; }

  BlockOptions blocks() const { return sets_.front().order->get().blocks; }
  // Replaces the windows by windows of other sizes. If the new ones do not fit, the old ones are
  // opened again. If these do not fit any more either, there are none, and `take` throws.
  void change(const BlockOptions& blocks);
  // Whether a `change` that failed has left no windows.
  bool missing() const;

  // Copies the samples of these pieces to `out`, one after the other. `scratch` has one entry for
  // each sample. Several threads may take samples at once, as from a WindowReader.
  void take(std::size_t field, std::span<const SamplePiece> pieces,
            std::span<std::uint64_t> scratch, std::byte* out);
  // The same for rows of different lengths, into a slot of their field.
  void take_ragged(std::size_t field, std::span<const SamplePiece> pieces,
                   std::span<std::uint64_t> scratch, std::size_t slot,
                   std::span<std::byte* const> out);
  // These call the function of the same name of each WindowReader.
  void pass(const Positions& first, const Positions& end);
  void seek(const Positions& first, const Positions& end);
  void interrupt();
  bool close(std::optional<ReadAhead::Clock::time_point> deadline);

 private:
  using Readers = std::vector<std::unique_ptr<WindowHolder>>;  // one for each set, or empty

  void require_readers(std::size_t field) const;
  void open_readers();
  void make_readers();
  void require_possible(const BlockOptions& blocks) const;
  Order order_of(const Set& set) const;
  std::uint64_t taken_of_epoch(const Set& set) const;
  void for_each(const std::function<void(std::size_t set, WindowHolder& reader)>& use) const;

  const Steps steps_;
  const std::vector<Set> sets_;
  std::vector<Field> fields_;
  std::vector<bool> has_;         // by field
  bool opened_ = false;           // from then on, only fields with windows get new ones
  std::vector<Readers> readers_;  // by field
};

// An engine for batches that are copied out of windows: it has nothing to read.
class IdleEngine final : public Engine {
 public:
  void run(Feed& feed) override;
  EngineLimits limits() const override { return {}; }
  EngineReport report() const override { return {}; }
  unsigned concurrency() const override { return 2; }  // two threads copy faster than one
};

}  // namespace evenkeel
