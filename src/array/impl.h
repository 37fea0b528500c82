// What an Array is made of; shared with the chunks that are read from it.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "array/row_feed.h"
#include "base/per_process.h"
#include "engine/engine.h"
#include "evenkeel/array.h"
#include "format/layout.h"

namespace evenkeel {

struct Array::Impl {
  Impl(Layout array_layout, const ArrayOptions& options);
  ~Impl();

  const Layout layout;
  const Budget budget;
  const std::optional<std::uint64_t> merge_gap;
  Reservation bookkeeping;

  std::shared_ptr<Engine> engine() const;
  // Data that was mapped because it fits leaves too little room for `bytes` of buffers: read it
  // instead. False when it was not mapped by choice.
  bool stop_mapping(std::uint64_t bytes);

  void crops(std::span<const std::uint64_t> starts, std::uint64_t count, std::byte* out);
  void check_rows(const char* operation, std::uint64_t first, std::uint64_t count) const;

 private:
  struct Gatherer;

  void note_files_to_drop();
  void drop_files() const;

  const std::uint64_t most_starts_;
  // Guards engine_. A child of fork has its own: a thread of the parent's may hold the other.
  mutable PerProcess<std::mutex> mutex_{[] { return std::make_unique<std::mutex>(); }};
  mutable std::shared_ptr<Engine> engine_;  // empty after a change of engines that failed
  // Files that were not wholly cached when they were mapped: what is cached of them by the time the
  // mapping ends is this array's doing.
  std::vector<std::uint32_t> files_to_drop_;
  std::unique_ptr<PerProcess<Gatherer>> gatherer_;
};

// Copies rows out of files that the engine holds mapped.
void copy_mapped(Engine& engine, const Layout& layout, std::span<const std::uint64_t> starts,
                 std::uint64_t count, std::byte* out);

}  // namespace evenkeel
