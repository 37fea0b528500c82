// The windows of the order `blocks`, one reader for each array of a loader.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "array/impl.h"
#include "array/window_reader.h"
#include "engine/engine.h"

namespace evenkeel {

// Windows of the arrays that are not mapped: rows of those are taken where they are.
class FieldWindows {
 public:
  using Arrays = std::vector<std::shared_ptr<Array::Impl>>;

  // Fields that are not there (nullptr) have none. `taken` is how many positions of an epoch this
  // rank takes. Arrays that are mapped because they fit are read instead where the windows of
  // others need the room. Throws Error (kBudget, kInvalid) as WindowReader does.
  void open(const Arrays& fields, const Order& order, std::uint64_t taken);
  void clear() { readers_.clear(); }

  bool any() const;
  bool has(std::size_t field) const { return field < readers_.size() && readers_[field]; }
  // As WindowReader does, for one field.
  void take(std::size_t field, std::uint64_t first, std::span<std::uint64_t> rows, std::byte* out) {
    readers_[field]->take(first, rows, out);
  }
  void seek(std::uint64_t position, std::uint64_t end);
  void interrupt();
  bool close(std::optional<ReadAhead::Clock::time_point> deadline);

 private:
  std::vector<std::unique_ptr<WindowReader>> readers_;  // one for each field, or none
};

// For batches that are copied out of windows: there is nothing to read.
class IdleEngine final : public Engine {
 public:
  void run(Feed& feed) override;
  EngineLimits limits() const override { return {}; }
  EngineReport report() const override { return {}; }
  unsigned concurrency() const override { return 2; }  // copying is work
};

}  // namespace evenkeel
