// The order `blocks` if rows are made of documents: the tokens of all rows of a window are read
// together, and batches are copied out of them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "array/impl.h"
#include "array/window_reader.h"
#include "base/memory.h"
#include "loader/schedule.h"

namespace evenkeel {

class DocumentBatches;

// Computes which window a position of a rank is in. A window is a range of positions of all ranks;
// a rank takes each world-th of them.
struct OrderWindows {
  std::uint64_t epoch = 1;   // positions of an epoch
  std::uint64_t window = 1;  // positions of a window; the last one of an epoch may have fewer
  std::uint64_t rank = 0, world = 1;
  // How many positions this rank takes of an epoch, if epochs begin with steps. Empty: the
  // positions of an epoch directly follow those of the one before.
  std::optional<std::uint64_t> taken = {};
  // This rank's positions after which the first one comes again; 0: never.
  std::uint64_t repeat = 0;

  // The position among those of all ranks.
  std::uint64_t position(std::uint64_t mine) const;
  std::uint64_t number_of(std::uint64_t mine) const;  // of the window, counted across epochs
  std::uint64_t first_of(
      std::uint64_t number) const;  // the first position of this rank in a window
  std::uint64_t most() const { return window / world + 1; }  // positions of this rank in a window

 private:
  std::uint64_t windows() const;  // of an epoch
  // The windows of `repeat` positions, which are counted on from one repetition to the next.
  std::uint64_t repeated_windows() const { return number_in_repeat(repeat - 1) + 1; }
  std::uint64_t number_in_repeat(std::uint64_t mine) const;
  std::uint64_t first_in_repeat(std::uint64_t number) const;
  // The position in its epoch.
  std::uint64_t within(std::uint64_t mine, std::uint64_t& epoch_number) const;
};

// Reads the tokens of a rank's rows window by window, in sorted order and with few requests, and
// their loss mask, if there is one. Memory for two windows is reserved when the reader is created.
// A window with more tokens takes more from the budget and keeps it.
class DocumentWindowReader final : public WindowHolder {
 public:
  struct Set {
    std::size_t number = 0;
    OrderWindows windows = {};
    std::unique_ptr<SampleOrder> order = nullptr;  // used by this reader only
    std::uint64_t first_token = 0;                 // in the array of tokens
    std::optional<std::uint64_t> first_mask = {};  // in the array of masks
    std::uint64_t usual_tokens = 0;                // in a window
    std::uint64_t usual_spans = 0;                 // in a window
  };
  // `masks` may be nullptr. Throws Error (kBudget) with the arithmetic.
  DocumentWindowReader(DocumentBatches& documents, std::shared_ptr<Array::Impl> tokens,
                       std::shared_ptr<Array::Impl> masks, Set set);
  ~DocumentWindowReader() override { close(); }

  // A contiguous range of tokens of the set.
  struct Span {
    std::uint64_t start = 0, end = 0;
  };
  // A window in memory.
  class Held {
   public:
    // Copy tokens of the set, or numbers of its mask. They must be in the window.
    void copy_tokens(std::uint64_t start, std::uint64_t count, std::byte* out) const {
      copy(0, start, count, out);
    }
    void copy_mask(std::uint64_t start, std::uint64_t count, std::byte* out) const {
      copy(1, start, count, out);
    }

   private:
    friend class DocumentWindowReader;
    struct Slot;
    Held(const DocumentWindowReader& reader, std::size_t slot) : reader_(reader), slot_(slot) {}
    void copy(std::size_t which, std::uint64_t start, std::uint64_t count, std::byte* out) const;
    const DocumentWindowReader& reader_;
    const std::size_t slot_;
  };
  // Splits positions first .. first + count - 1 by window, and calls use(held, count) for each
  // part.
  template <class Use>
  void take(std::uint64_t first, std::uint64_t count, const Use& use) {
    take_parts(first, count, [&](std::size_t slot, std::uint64_t, std::uint64_t now) {
      use(Held(*this, slot), now);
    });
  }

 private:
  // What is read from one array.
  struct Part {
    PageBuffer memory;
    std::vector<JobRun> runs;
    std::vector<std::uint64_t> places;  // of the spans in `memory`, in bytes
    Job job;
  };
  struct Slot {
    Reservation share;
    std::size_t room = 0;     // spans
    std::vector<Span> spans;  // ascending
    std::array<Part, 2> parts;
  };

  std::uint64_t number_of(std::uint64_t position) const override {
    return set_.windows.number_of(position);
  }
  std::uint64_t begin_of(std::uint64_t number) const override {
    return set_.windows.first_of(number);
  }
  std::uint64_t end_of(std::uint64_t number) const override {
    return set_.windows.first_of(number + 1);
  }
  Job& prepare(std::size_t slot, std::uint64_t number) override {
    return prepare_stream(slot, number, 0);
  }
  Job& prepare_stream(std::size_t slot, std::uint64_t number, std::size_t stream) override;
  void free_memory() override;
  void reserve();
  void find_spans(Slot& slot, std::uint64_t number);
  void grow_wanted(std::size_t room);
  void want(Span span);
  void make_room(Slot& slot, std::size_t spans) const;
  void place(Slot& slot, std::size_t which);
  // The usual number of spans in a slot. Without other ranks, documents of a window are adjacent.
  std::size_t usual_spans() const {
    return set_.windows.world > 1 ? set_.usual_spans : set_.windows.most();
  }
  const Array::Impl& array(std::size_t which) const { return which == 0 ? *tokens_ : *masks_; }

  DocumentBatches& documents_;
  const std::shared_ptr<Array::Impl> tokens_, masks_;
  const Set set_;
  std::vector<std::shared_ptr<Engine>> engines_;  // of the tokens and the masks
  // Used by the thread that prepares windows.
  Reservation lists_share_, wanted_share_;
  std::vector<std::uint64_t> rows_;
  std::vector<Span> wanted_;
  std::vector<Slot> slots_;
};

// One reader for each set.
class DocumentWindows {
 public:
  using Positions = std::vector<std::uint64_t>;
  using Make = std::function<std::unique_ptr<DocumentWindowReader>(std::size_t set)>;

  // If `make` throws, there are no readers afterwards. `any` stays true once `open` was called.
  void open(std::size_t sets, const Make& make);
  bool any() const { return opened_; }
  bool missing() const { return opened_ && readers_.empty(); }

  DocumentWindowReader& reader(std::size_t set) const;
  // These call the function of the same name of each reader.
  void pass(const Positions& first, const Positions& end);
  void seek(const Positions& first, const Positions& end);
  void interrupt();
  bool close(std::optional<ReadAhead::Clock::time_point> deadline);

 private:
  bool opened_ = false;
  std::vector<std::unique_ptr<DocumentWindowReader>> readers_;
};

}  // namespace evenkeel
