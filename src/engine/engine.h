// How bytes come from the disk: one small interface, one file an engine.
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

// A piece of a file that is wanted. Offset and length are multiples of the engine's alignment; the
// end may lie beyond the end of the file by less than that.
struct Extent {
  std::uint32_t file = 0;  // index into Layout::segments
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t tag = 0;         // the feed's own
  std::byte* into = nullptr;     // if set, `length` aligned bytes the engine may fill itself
  bool from_page_cache = false;  // set by the engine, on arrival: the disk was not asked
};

// Bytes of a file and their place in memory.
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
  // The next extent, or false: none now. The engine asks again after each arrival, and returns from
  // run when there is none and nothing is in flight.
  virtual bool next(Extent& extent) = 0;
  // `data` holds the extent's bytes up to the end of the file. It is extent.into if the engine used
  // that, nullptr if it put the bytes at their target, or else the engine's own memory, which is
  // valid during this call.
  virtual void arrived(const Extent& extent, const std::byte* data) = 0;
  // Where the wanted bytes of this extent belong, if they are in one piece: an engine that can read
  // any byte range may put them there itself.
  virtual std::optional<Target> target(const Extent& extent) const = 0;
  // Whether the feed copies what arrives in the engine's memory, besides putting it in its place.
  virtual bool keeps_copies() const { return false; }
  // Work that has nothing to do with extents. An engine that waits does a little of it, and looks
  // at its reads again. It need not: what is left is the feed's own to do.
  virtual bool has_other_work() const { return false; }
  virtual void do_other_work() {}
  // Whether nobody wants what is still under way. An engine that may wait for long looks, and
  // leaves.
  virtual bool cancelled() const { return false; }

 protected:
  ~Feed() = default;
};

struct EngineLimits {
  std::uint64_t alignment = 1;    // of offsets and lengths; a power of two
  std::uint64_t max_request = 1;  // longest extent, a multiple of the alignment
  std::uint64_t merge_gap = 0;    // a gap up to this is cheaper to read than a second request
};

// Counters of an engine since it was created.
struct EngineTotals {
  std::uint64_t requests = 0;               // sent to the disk
  std::uint64_t in_flight = 0;              // of these, not back yet
  std::uint64_t bytes_from_disk = 0;        // alignment and gaps included
  std::uint64_t bytes_from_page_cache = 0;  // that were wanted
  std::uint64_t wait_ns = 0;                // threads waited for the disk, or for a server
  std::uint64_t bytes_from_network = 0;     // gaps, repeats and second requests included
  std::uint64_t retries = 0;                // requests that were made again
  std::uint64_t hedges = 0;                 // second requests for bytes that were late
  std::uint64_t bytes_from_disk_cache = 0;  // of objects; alignment and gaps included
  std::uint64_t bytes_from_mapping = 0;     // copied out of mapped files by `count_mapped`
};

// Thread-safe: while `concurrency` threads are in `run`, others wait. Everything an engine
// allocates, maps or brings into the page cache is reserved from the budget when the engine is
// made.
class Engine {
 public:
  virtual ~Engine() = default;
  // Brings every extent of the feed. Throws Error (kSystem, kFormat) with path and offset; nothing
  // is in flight any more when it throws.
  virtual void run(Feed& feed) = 0;
  virtual EngineLimits limits() const = 0;
  virtual EngineReport report() const = 0;
  // Cheap, from any thread. Engines that cannot tell the disk from the page cache leave zeros.
  virtual EngineTotals totals() const { return {}; }
  // How many threads may be in `run` at once to advantage, as things are now.
  virtual unsigned concurrency() const { return 1; }
  // Throws Error (kFormat) when a file that this run reads is not what it was at open. For feeds
  // that hand something on before the run ends, from their calls within it.
  virtual void require_unchanged(std::uint32_t /*file*/) {}
  // Whether the engine holds whole files mapped: rows are then used in place.
  virtual bool maps_files() const { return false; }
  // The whole file in memory, if maps_files. Throws Error (kFormat) when the file is not what it
  // was at open.
  virtual const std::byte* mapped(std::uint32_t /*file*/) { return nullptr; }
  // So many bytes were copied out of mapped files, none of which had to be asked for.
  virtual void count_mapped(std::uint64_t /*bytes*/) {}
  // Whether mapped pages may have to be read from the disk first. Before they are touched, a caller
  // asks for them with `request`, for many at a time, and waits with `await`. Both after `mapped`
  // of the file; from any thread.
  virtual bool pages_may_be_absent() const { return false; }
  virtual std::size_t ranges_together() const { return 256; }  // of one `request`, at most
  // Whether all of it was in memory a moment ago, as far as is known without asking the kernel.
  virtual bool known_in_memory(std::span<const FileRange> /*ranges*/) { return false; }
  // Starts reading what is not in memory, and adds what `await` is to wait for to `pending`.
  virtual void request(std::span<const FileRange> /*ranges*/, std::vector<FileRange>& /*pending*/) {
  }
  // Waits for it, and empties `pending`. Throws Error (kSystem, kFormat) with path and offset.
  virtual void await(std::vector<FileRange>& /*pending*/) {}
  // For data that is mapped because it fits the budget. `release_memory` drops its pages and gives
  // back its share of the budget; nothing may be read until `reclaim_memory` has the share again.
  // False: it no longer fits.
  virtual void release_memory() {}
  virtual bool reclaim_memory(const Budget& /*budget*/) { return true; }
};

// Chooses, builds and explains. `layout` must outlive the engine. With kAuto, data is mapped whole
// when the budget holds it and `working_room` bytes besides; with kNeverMap it is not mapped. Data
// that is better read than mapped has a reason for that, `why_read`.
inline constexpr std::uint64_t kNeverMap = UINT64_MAX;
std::unique_ptr<Engine> make_engine(EngineKind asked, const Layout& layout, const Budget& budget,
                                    std::uint64_t working_room, const std::string& why_read = "");

// The engine for a way to use the page cache. Throws Error (kInvalid) when the two do not go
// together.
EngineKind engine_for(EngineKind asked, PageCache page_cache);

// The most memory that an engine which does not map takes under a budget of this limit.
std::uint64_t most_engine_memory(std::uint64_t limit);

}  // namespace evenkeel
