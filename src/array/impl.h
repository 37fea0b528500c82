// What an Array is made of. Chunks, token loaders and the Python bindings use it, too.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "array/row_cache.h"
#include "array/row_feed.h"
#include "base/mutex.h"
#include "base/per_process.h"
#include "engine/engine.h"
#include "evenkeel/array.h"
#include "format/layout.h"
#include "metrics/live.h"

namespace evenkeel {

struct Array::Impl final : LiveObject {
  Impl(Layout array_layout, const ArrayOptions& options);
  ~Impl();

 private:
  LiveEntry live_;  // before all that holds memory

 public:
  const Layout layout;
  const Budget budget;
  const std::optional<std::uint64_t> merge_gap;
  Reservation bookkeeping;

  // Waits while the engine changes, which may take as long as the disk does.
  std::shared_ptr<Engine> engine() const;
  // The same without waiting; empty where it would wait.
  std::shared_ptr<Engine> engine_if_settled() const;

  // A share of the budget beside the array's own. Data that is mapped because it fits the budget is
  // read from then on if the share does not fit beside it. Throws Error (kBudget); the array then
  // goes on as before.
  Reservation room_for(std::uint64_t bytes, std::string_view what);
  // The same for the result of one read, which waits for other reads; see
  // Budget::reserve_for_read.
  Reservation room_for_read(std::uint64_t bytes, std::string_view what,
                            const std::function<void()>& while_waiting = {});
  // Makes an array that maps its files by choice read them instead, if `bytes` can be reserved then
  // (once no read is under way). False: it maps none, or was asked to. Throws Error (kBudget and
  // others); the array then goes on as before.
  bool stop_mapping(std::uint64_t bytes);

  // Rows of a chunk that surely fit the budget as it is now, beside `copies` more of the chunk that
  // the caller holds; for hints. `in_order`: rows that follow one another.
  std::uint64_t chunk_rows_that_fit(bool in_order, std::uint64_t copies) const;

  void crops(std::span<const std::uint64_t> starts, std::uint64_t count, std::byte* out);
  // The same for one crop that the cache has whole; false where it does not, or where the rows are
  // none of the array's. Never waits for the disk.
  bool crop_from_cache(std::uint64_t start, std::uint64_t count, std::byte* out);
  RowCache* cache() const { return cache_.get(); }  // nullptr: there is none
  ArrayStats stats() const;
  void check_rows(const char* operation, std::uint64_t first, std::uint64_t count) const;

 private:
  struct Gatherer;
  class Gatherers;
  class CachedCrops;
  class MappedRead;

  // Guards engine_, but for the constructor. A child of fork has its own: a thread of the parent's
  // may hold the other. (The compiler cannot check it: no expression names the mutex of a process.)
  struct EngineUse {
    Mutex mutex;
    CondVar changed;
    int mapped_reads GUARDED_BY(mutex) = 0;  // calls that copy out of the mapping now
    bool leaving GUARDED_BY(mutex) = false;  // the mapping is about to end: no new reads from it
  };

  std::optional<LiveFigures> live_figures() const override;
  LiveLabels live_labels() const override;
  ArrayStats stats_of(const Engine* engine) const;
  // Not called where it would have to wait.
  template <class Use>
  void use_settled_engine(const Use& use) const;
  void copy_crops(std::span<const std::uint64_t> starts, std::uint64_t count, std::byte* out);
  std::unique_ptr<RowCache> make_cache(const ArrayOptions& options);
  // Whether the cache has a crop now, and where its first bytes lie, to be prefetched.
  bool cache_has(std::uint64_t start, std::uint64_t count, const std::byte*& place);
  void prefetch_lookup(std::uint64_t start, std::uint64_t count);
  // Copies a crop, if the cache has it, and notes the files to verify.
  bool copy_cached(std::uint64_t start, std::uint64_t count, std::byte* out,
                   std::span<std::uint32_t> files, std::size_t& files_used);
  static bool maps_by_choice(const Engine* engine);
  void note_files_to_drop();
  void drop_files() const;

  mutable PerProcess<EngineUse> engine_use_{[] { return std::make_unique<EngineUse>(); }};
  // Empty after a change of engines that failed and could not be undone; then made again by the
  // next call that needs it.
  mutable std::shared_ptr<Engine> engine_;
  // Of engines before this one.
  std::atomic<std::uint64_t> mapped_before_ = 0;
  // Files that were not wholly cached when they were mapped. What is cached of them when the
  // mapping ends, this array brought in.
  std::vector<std::uint32_t> files_to_drop_;
  Reservation cache_share_;
  std::unique_ptr<RowCache> cache_;
  std::unique_ptr<PerProcess<Gatherers>> gatherers_;
};

// Copies rows out of files that the engine holds mapped.
void copy_mapped(Engine& engine, const Layout& layout, std::span<const std::uint64_t> starts,
                 std::uint64_t count, std::byte* out);

}  // namespace evenkeel
