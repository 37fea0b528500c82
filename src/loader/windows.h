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
#include "loader/ragged.h"

namespace evenkeel {

// Windows of the arrays that are not mapped: rows of those are taken where they are.
class FieldWindows {
 public:
  // What has windows, by field: an array, a field of rows of different lengths, or neither.
  struct Field {
    std::shared_ptr<Array::Impl> array;
    const RaggedField* ragged = nullptr;
  };
  // `taken` is how many positions of an epoch this rank takes. Arrays that are mapped because they
  // fit are read instead where the windows of others need the room. Throws Error (kBudget,
  // kInvalid) as WindowReader does.
  void open(const std::vector<Field>& fields, const Order& order, std::uint64_t taken);
  bool any() const;
  bool has(std::size_t field) const { return field < holders_.size() && holders_[field]; }
  // The reader of a field that has one, of the kind of that field.
  WindowReader& rows(std::size_t field) { return static_cast<WindowReader&>(*holders_[field]); }
  RaggedWindowReader& ragged(std::size_t field) {
    return static_cast<RaggedWindowReader&>(*holders_[field]);
  }
  void seek(std::uint64_t position, std::uint64_t end);
  void interrupt();
  bool close(std::optional<ReadAhead::Clock::time_point> deadline);

 private:
  std::vector<std::unique_ptr<WindowHolder>> holders_;  // one for each field, or none
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
