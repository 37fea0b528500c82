#include "metrics/live.h"

#include <pthread.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <map>

#include "base/mutex.h"
#include "base/per_process.h"
#include "base/sys.h"
#include "metrics/page.h"

namespace evenkeel {
namespace {

constexpr std::int64_t kPublishEvery = 20'000'000;
// Publishing takes at most 1/kShareOfTime of the time. With thousands of arrays it takes longer.
constexpr std::int64_t kShareOfTime = 100;
constexpr std::int64_t kPublishWithin = 1'000'000'000;
constexpr std::size_t kFewObjects = 16;
constexpr std::int64_t kNever = INT64_MAX;

std::atomic<std::int64_t> next_publish_ns = 0;

std::int64_t coarse_ns() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// All fields.
constexpr std::uint64_t ArrayStats::*kReads[] = {&ArrayStats::cache_hits,
                                                 &ArrayStats::cache_misses,
                                                 &ArrayStats::cache_bytes,
                                                 &ArrayStats::bytes_from_cache,
                                                 &ArrayStats::bytes_from_page_cache,
                                                 &ArrayStats::bytes_from_disk,
                                                 &ArrayStats::requests,
                                                 &ArrayStats::in_flight,
                                                 &ArrayStats::wait_ns,
                                                 &ArrayStats::bytes_from_network,
                                                 &ArrayStats::retries,
                                                 &ArrayStats::hedges,
                                                 &ArrayStats::bytes_from_disk_cache,
                                                 &ArrayStats::bytes_from_mapping};
static_assert(sizeof(ArrayStats) == std::size(kReads) * sizeof(std::uint64_t));

void add(LiveFigures& sum, const LiveFigures& one) {
  sum.reads += one.reads;
  sum.batches += one.batches;
  sum.batch_wait_ns += one.batch_wait_ns;
}

// All live objects of the process. The mutex is held across fork, so that the list is consistent in
// the child. Mutexes of live objects and of budgets are taken while it is held, never the other way
// round.
class LiveObjects {
 public:
  static LiveObjects& get() {
    static LiveObjects* const all = [] {
      // These register their fork handlers first: fork then takes this mutex before theirs, and
      // start_child may ask arrays for what they count per process.
      LiveBudgets::sum();
      ForkGeneration::now();
      auto* const made = new LiveObjects;  // never destroyed: objects may outlive static ones
      ::pthread_atfork([] { lock_for_fork(); }, [] { unlock_after_fork(); }, [] { start_child(); });
      return made;
    }();
    return *all;
  }

  std::uint64_t add_object(LiveKind kind, const LiveObject& object) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    objects_[next_number_] = {kind, &object, {}};
    publish_soon();
    return next_number_++;
  }

  void remove(std::uint64_t number) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto found = objects_.find(number);
    if (found == objects_.end()) return;  // a loader from before a fork
    Entry entry = found->second;
    objects_.erase(found);
    publish_soon();
    LiveFigures last = look(entry);
    last.reads.cache_bytes = last.reads.in_flight = 0;  // gauges, not counters
    add(closed_, last);
  }

  LiveReport report() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    LiveReport report;
    report.budgets = LiveBudgets::list();
    for (auto& [number, entry] : objects_) {
      report.objects.push_back({number, entry.kind, entry.object->live_labels(), look(entry)});
    }
    report.process = sum();
    return report;
  }

  void publish(std::int64_t now) EXCLUDES(mutex_) {
    if (!mutex_.try_lock()) return;  // another thread publishes, or the next call will
    std::int64_t next = now + kPublishWithin;
    try {
      if (!page_) page_ = Page::create();
      const std::int64_t began = sys::monotonic_ns();
      const PageState state = page_ ? page_->write(sum()) : PageState::kFailed;
      const std::int64_t took = sys::monotonic_ns() - began;
      if (state == PageState::kWritten) {
        next = now + std::clamp(kShareOfTime * took, kPublishEvery, kPublishWithin);
      } else {
        if (page_) page_->close();
        page_.reset();  // if it was lost, the next call creates a new one
        if (state == PageState::kFailed) next = kNever;
      }
    } catch (...) {  // no memory: try again next time
    }
    next_publish_ns.store(next);
    mutex_.unlock();
  }

 private:
  struct Entry {
    LiveKind kind;
    const LiveObject* object;
    LiveFigures last;
  };

  // If there are many objects, opening or closing one is published with the next update.
  void publish_soon() REQUIRES(mutex_) {
    if (objects_.size() <= kFewObjects && next_publish_ns.load() != kNever)
      next_publish_ns.store(0);
  }

  static void start_counting(Entry& entry) {
    entry.last = {};
    try {
      entry.object->live_figures();
    } catch (...) {  // no memory: the object notes it later
    }
  }

  static LiveFigures look(Entry& entry) {
    if (const auto now = entry.object->live_figures()) entry.last = *now;
    return entry.last;
  }

  ProcessFigures sum() REQUIRES(mutex_) {
    const BudgetSums budgets = LiveBudgets::sum();
    ProcessFigures sum{.budgets = budgets.count,
                       .limit = budgets.limit,
                       .in_use = budgets.in_use,
                       .cached = budgets.cached,
                       .peak = budgets.peak,
                       .work = closed_};
    for (auto& [number, entry] : objects_) {
      const bool reads = entry.kind == LiveKind::kArray || entry.kind == LiveKind::kWeights;
      ++(reads ? sum.arrays : sum.loaders);
      add(sum.work, look(entry));
    }
    return sum;
  }

  static void lock_for_fork() NO_THREAD_SAFETY_ANALYSIS { get().mutex_.lock(); }
  static void unlock_after_fork() NO_THREAD_SAFETY_ANALYSIS { get().mutex_.unlock(); }
  // A child has arrays but no loaders, because threads do not survive a fork. It counts from 0, and
  // gets its own page when it first reads something.
  static void start_child() NO_THREAD_SAFETY_ANALYSIS {
    LiveObjects& all = get();
    std::erase_if(all.objects_, [](const auto& numbered) {
      return numbered.second.kind == LiveKind::kLoader || numbered.second.kind == LiveKind::kChunks;
    });
    for (auto& [number, entry] : all.objects_) start_counting(entry);
    all.closed_ = {};
    if (all.page_) all.page_->close();
    all.page_.reset();  // it belongs to the parent
    next_publish_ns.store(0);
    all.mutex_.unlock();
  }

  Mutex mutex_;
  std::map<std::uint64_t, Entry> objects_ GUARDED_BY(mutex_);
  std::uint64_t next_number_ GUARDED_BY(mutex_) = 1;
  LiveFigures closed_ GUARDED_BY(mutex_);  // the sum over closed objects
  std::optional<Page> page_ GUARDED_BY(mutex_);
};

}  // namespace

ArrayStats reads_since(ArrayStats now, const ArrayStats& before) {
  for (const auto field : kReads) now.*field -= std::min(now.*field, before.*field);
  return now;
}

void LiveEntry::begin(LiveKind kind, const LiveObject& object) noexcept {
  try {
    number_ = LiveObjects::get().add_object(kind, object);
    begun_ = true;
    note_work();
  } catch (...) {  // no memory for the entry: the object is not listed
  }
}

void LiveEntry::end() noexcept {
  if (number_ == 0) return;
  try {
    LiveObjects::get().remove(number_);
  } catch (...) {
  }
  number_ = 0;
}

LiveEntry::~LiveEntry() {
  end();
  if (begun_) note_work();
}

LiveReport live_report() { return LiveObjects::get().report(); }

void note_work() noexcept {
  const std::int64_t now = coarse_ns();
  if (now < next_publish_ns.load(std::memory_order_relaxed)) return;
  LiveObjects::get().publish(now);
}

}  // namespace evenkeel
