// The interface of engines, which bring bytes from the disk into memory. Each engine has its own
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/array.h"
#include "format/layout.h"

namespace evenkeel {

// A range of a file to read. Offset and length are multiples of the engine's alignment, so the end
// may lie beyond the end of the file by less than the alignment.
struct Extent {
  std::uint32_t file = 0;  // index into Layout::segments
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t tag = 0;         // for the feed; engines ignore it
  std::byte* into = nullptr;     // if set, `length` aligned bytes that the engine may read into
  bool from_page_cache = false;  // set by the engine on arrival: nothing was read from the disk
};

// Bytes of a file and where to put them in memory.
struct Target {
  std::uint64_t offset = 0, length = 0;
  std::byte* out = nullptr;
};

// Bytes of a file.
struct FileRange {
  std::uint32_t file = 0;
  std::uint64_t offset = 0, length = 0;
};

// The caller of an engine. The engine pulls extents when it has room and returns each once its
// bytes are in memory. Both calls come from the thread that called Engine::run, never at the same
// time.
class Feed {
 public:
  // Returns the next extent, or false if there is none now. The engine calls it again after each
  // arrival, and returns from `run` when there is none and nothing is in flight.
  virtual bool next(Extent& extent) = 0;
  // `data` holds the extent's bytes up to the end of the file. It is extent.into if the engine used
  // that, nullptr or their target if it put the bytes there, or else the engine's own memory, which
  // is valid during this call.
  virtual void arrived(const Extent& extent, const std::byte* data) = 0;
  // Where the wanted bytes of this extent belong, if they are contiguous. An engine that can read
  // any byte range may put them there itself.
  virtual std::optional<Target> target(const Extent& extent) const = 0;
  // Whether the feed also keeps copies of bytes that arrive in the engine's memory (for a cache).
  virtual bool keeps_copies() const { return false; }
  // Work that has nothing to do with extents. An engine may do a little of it whenever it would
  // wait for reads. The feed does the rest itself.
  virtual bool has_other_work() const { return false; }
  virtual void do_other_work() {}
  // The most bytes to read into the feed's own memory at a time, if this is less than what the
  // engine would read.
  virtual std::uint64_t most_in_flight() const { return UINT64_MAX; }
  // Whether the results of this run are no longer needed. An engine that may wait for a long time
  // checks this, and then returns.
  virtual bool cancelled() const { return false; }

 protected:
  ~Feed() = default;
};

struct EngineLimits {
  std::uint64_t alignment = 1;    // of offsets and lengths; a power of two
  std::uint64_t max_request = 1;  // longest extent, a multiple of the alignment
  std::uint64_t merge_gap = 0;  // reading a gap of up to this size is cheaper than a second request
  std::uint64_t block = 0;      // if not 0, no extent crosses a multiple of this
};

// Counters of an engine since it was created.
struct EngineTotals {
  std::uint64_t requests = 0;               // sent to the disk
  std::uint64_t in_flight = 0;              // of these, not completed yet
  std::uint64_t bytes_from_disk = 0;        // alignment and gaps included
  std::uint64_t bytes_from_page_cache = 0;  // wanted bytes only
  std::uint64_t wait_ns = 0;                // time that threads waited for the disk or a server
  std::uint64_t bytes_from_network = 0;     // gaps, repeats and second requests included
  std::uint64_t retries = 0;                // requests that were made again
  std::uint64_t hedges = 0;                 // second requests for bytes that were late
  std::uint64_t bytes_from_disk_cache = 0;  // the cache of objects; alignment and gaps included
  std::uint64_t bytes_from_mapping = 0;     // copied out of mapped files; see `count_mapped`
};

// Thread-safe. An engine that cannot serve another thread makes it wait in `run`. Everything an
// engine allocates, maps or brings into the page cache is reserved from the budget, most of it when
// the engine is created.
class Engine {
 public:
  virtual ~Engine() = default;
  // Reads every extent of the feed. Throws Error (kSystem, kFormat) with path and offset. Nothing
  // is in flight any more when it throws.
  virtual void run(Feed& feed) = 0;
  virtual EngineLimits limits() const = 0;
  virtual EngineReport report() const = 0;
  // Cheap; may be called from any thread. Engines that cannot tell the disk from the page cache
  // leave zeros.
  virtual EngineTotals totals() const { return {}; }
  // How many threads in `run` at once are currently faster than one.
  virtual unsigned concurrency() const { return 1; }
  // Throws Error (kFormat) if a file that this run reads has changed since it was opened. Feeds
  // that pass on data before the run ends call this from `next` or `arrived`.
  virtual void require_unchanged(std::uint32_t /*file*/) {}
  // Whether the engine maps whole files, so that rows can be used in place.
  virtual bool maps_files() const { return false; }
  // The mapping of the whole file, if maps_files. Throws Error (kFormat) if the file has changed
  // since it was opened.
  virtual const std::byte* mapped(std::uint32_t /*file*/) { return nullptr; }
  // Counts bytes that were copied out of mapped files without a `request`.
  virtual void count_mapped(std::uint64_t /*bytes*/) {}
  // Whether mapped pages may have to be read from the disk first. If so, the caller calls `request`
  // for many ranges at a time before it touches them, and waits with `await`. Both may be called
  // from any thread, after `mapped` was called for the file.
  virtual bool pages_may_be_absent() const { return false; }
  virtual std::size_t ranges_together() const { return 256; }  // the most in one `request`
  // Whether all ranges are known to have been in memory a moment ago. Does not ask the kernel.
  virtual bool known_in_memory(std::span<const FileRange> /*ranges*/) { return false; }
  // Starts reading what is not in memory, and adds the ranges to wait for to `pending`.
  virtual void request(std::span<const FileRange> /*ranges*/, std::vector<FileRange>& /*pending*/) {
  }
  // Waits for these ranges and clears `pending`. Throws Error (kSystem, kFormat) with path and
  // offset.
  virtual void await(std::vector<FileRange>& /*pending*/) {}
  // For data that is mapped because it fits the budget. `release_memory` drops its pages and gives
  // back its reservation. Nothing may be read until `reclaim_memory` has reserved it again, which
  // returns false if it no longer fits.
  virtual void release_memory() {}
  virtual bool reclaim_memory(const Budget& /*budget*/) { return true; }
};

// Chooses and creates an engine; its report says why. `layout` must outlive the engine. With kAuto,
// the data is mapped if it fits the budget together with `working_room` more bytes (kNeverMap: it
// is not mapped). A `why_read` that is not empty means that the data is read, and is the reason.
inline constexpr std::uint64_t kNeverMap = UINT64_MAX;
std::unique_ptr<Engine> make_engine(EngineKind asked, const Layout& layout, const Budget& budget,
                                    std::uint64_t working_room, const std::string& why_read = "");

// The engine for a page cache mode. Throws Error (kInvalid) if `asked` does not support the mode.
EngineKind engine_for(EngineKind asked, PageCache page_cache);

// The most memory that `auto` needs for local files under a budget of this limit when it does not
// map them.
std::uint64_t most_engine_memory(std::uint64_t limit);

}  // namespace evenkeel
