// The implementation of Array. Chunks, loaders and the Python bindings use it, too.
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
  LiveEntry live_;  // declared before everything that holds memory

 public:
  const Layout layout;
  const Budget budget;
  const std::optional<std::uint64_t> merge_gap;
  Reservation bookkeeping;

  // Waits while the engine is being changed, which may take as long as a read. While a caller keeps
  // the pointer, `stop_mapping` cannot free the mapping. So callers that only ask something call
  // the next two.
  std::shared_ptr<Engine> engine() const;
  EngineReport report() const;
  bool maps_files() const;
  // The same for a short call and without waiting; empty if it would have to wait. `stop_mapping`
  // waits until it is destroyed.
  class SettledEngine;
  SettledEngine engine_if_settled() const;

  // Reserves memory beside the array's own. If it does not fit beside data that is mapped because
  // it fits the budget, the mapping ends and the data is read from then on. Throws Error (kBudget);
  // the array then works as before.
  Reservation room_for(std::uint64_t bytes, std::string_view what);
  // The same for the result of one read. Waits for other reads; see Budget::reserve_for_read.
  Reservation room_for_read(std::uint64_t bytes, std::string_view what,
                            const std::function<void()>& while_waiting = {});
  // Makes an array that maps its files by choice read them instead, if `bytes` can be reserved then
  // (once no read is in progress). Returns false if it does not map them, or if the user requested
  // kMap. Throws Error (kBudget and others); the array then works as before.
  bool stop_mapping(std::uint64_t bytes);

  // For hints: how many rows of a chunk surely fit the budget as it is now, beside `copies` copies
  // of the chunk that the caller holds. `in_order`: the rows are consecutive.
  std::uint64_t chunk_rows_that_fit(bool in_order, std::uint64_t copies) const;

  void crops(std::span<const std::uint64_t> starts, std::uint64_t count, std::byte* out);
  // The same for one crop that is entirely in the cache. Returns false if it is not, or if the rows
  // are outside the array. Never waits for the disk.
  bool crop_from_cache(std::uint64_t start, std::uint64_t count, std::byte* out);
  RowCache* cache() const { return cache_.get(); }  // nullptr if there is none
  ArrayStats stats() const;
  void check_rows(const char* operation, std::uint64_t first, std::uint64_t count) const;

 private:
  struct Gatherer;
  class Gatherers;
  class CachedCrops;
  class MappedRead;

  // Guards engine_, except in the constructor. A child of fork has its own, because a thread of the
  // parent may have held the other. (The compiler cannot check this: no expression names the mutex
  // of a process.)
  struct EngineUse {
    Mutex mutex;
    CondVar changed;
    ArrayStats before_fork;                  // what the parent of this process has read
    int short_uses GUARDED_BY(mutex) = 0;    // calls that use the engine now, to copy for example
    bool leaving GUARDED_BY(mutex) = false;  // the mapping is ending: start no new uses of it

    void wait_until_settled() REQUIRES(mutex) {
      while (leaving) changed.wait(mutex);
    }
    void end_short_use() EXCLUDES(mutex) {
      const MutexLock lock(mutex);
      if (--short_uses == 0 && leaving) changed.notify_all();
    }
  };

  std::optional<LiveFigures> live_figures() const override;
  LiveLabels live_labels() const override;
  ArrayStats engine_stats(const Engine* engine) const;  // since the array was opened
  ArrayStats stats_of(const Engine* engine) const;      // of this process, with the cache
  // Calls `use` with the pointer to the engine, which cannot change meanwhile. Makes an engine if
  // there is none.
  template <class Use>
  auto with_engine(const Use& use) const;
  // Does not call `use` if it would have to wait for the engine.
  template <class Use>
  void use_settled_engine(const Use& use) const;
  void copy_crops(std::span<const std::uint64_t> starts, std::uint64_t count, std::byte* out);
  std::unique_ptr<RowCache> make_cache(const ArrayOptions& options);
  // Whether the cache has a crop now. `place` becomes the address of its first bytes, for
  // prefetching.
  bool cache_has(std::uint64_t start, std::uint64_t count, const std::byte*& place);
  void prefetch_lookup(std::uint64_t start, std::uint64_t count);
  // Copies a crop if the cache has it, and notes the files to verify.
  bool copy_cached(std::uint64_t start, std::uint64_t count, std::byte* out,
                   std::span<std::uint32_t> files, std::size_t& files_used);
  static bool maps_by_choice(const Engine* engine);
  void note_files_to_drop();
  void drop_files() const;

  // Empty after a change of engines that failed and could not be undone. The next call that needs
  // an engine then makes one.
  mutable std::shared_ptr<Engine> engine_;
  // bytes_from_mapping of earlier engines.
  std::atomic<std::uint64_t> mapped_before_ = 0;
  mutable PerProcess<EngineUse> engine_use_{[this] {
    auto use = std::make_unique<EngineUse>();
    use->before_fork = engine_stats(engine_.get());
    return use;
  }};
  // Files that were not entirely cached when they were mapped. Their pages are dropped when the
  // mapping ends, because this array brought them in.
  std::vector<std::uint32_t> files_to_drop_;
  Reservation cache_share_;
  std::unique_ptr<RowCache> cache_;
  std::unique_ptr<PerProcess<Gatherers>> gatherers_;
};

class Array::Impl::SettledEngine {
 public:
  explicit SettledEngine(const Impl& impl);
  ~SettledEngine();
  SettledEngine(const SettledEngine&) = delete;
  SettledEngine& operator=(const SettledEngine&) = delete;
  explicit operator bool() const { return engine_ != nullptr; }
  Engine* operator->() const { return engine_; }

 private:
  EngineUse& use_;
  Engine* engine_ = nullptr;
};

// Copies rows out of files that the engine maps.
void copy_mapped(Engine& engine, const Layout& layout, std::span<const std::uint64_t> starts,
                 std::uint64_t count, std::byte* out);

}  // namespace evenkeel
