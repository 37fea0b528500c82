// Reads the chunks of a block from their files, decodes them and assembles the block.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/memory.h"
#include "base/mutex.h"
#include "engine/codecs.h"
#include "format/chunk_grid.h"

namespace evenkeel {

// The offset and the length of each chunk in a shard, as stored.
using ShardIndex = std::vector<std::uint64_t>;

// A cache of the most recently used shard indexes. Thread-safe.
class ShardIndexes {
 public:
  explicit ShardIndexes(std::size_t most) : most_(most) {}
  std::shared_ptr<const ShardIndex> find(const std::string& file) EXCLUDES(mutex_);
  // Returns the index that is in the cache now: another thread may have added it first.
  std::shared_ptr<const ShardIndex> add(const std::string& file,
                                        std::shared_ptr<const ShardIndex> index) EXCLUDES(mutex_);

 private:
  std::shared_ptr<const ShardIndex> look_up(const std::string& file) REQUIRES(mutex_);

  struct Entry {
    std::string file;
    std::shared_ptr<const ShardIndex> index;
  };
  const std::size_t most_;
  Mutex mutex_;
  std::list<Entry> entries_ GUARDED_BY(mutex_);  // most recently used first
};

// Reads blocks. Not thread-safe: each thread has its own. The owner reserves its memory. `grid`,
// `indexes` and `counters` must outlive it.
class BlockReader {
 public:
  struct Counters {
    std::atomic<std::uint64_t> requests = 0, bytes_from_disk = 0, bytes_from_page_cache = 0;
  };
  BlockReader(const ChunkGrid& grid, const Budget& budget, ShardIndexes& indexes,
              Counters& counters);

  // Fills `out`, block_size bytes, with the decoded rows of a block. Throws Error (kFormat,
  // kSystem, kBudget).
  void read(std::uint64_t block, std::span<std::byte> out);

  // Bytes of a block in memory. The last block takes as much as the others.
  static std::uint64_t block_size(const ChunkGrid& grid);
  // The most memory that a reader takes.
  static std::uint64_t memory(const ChunkGrid& grid);
  static std::uint64_t index_bytes(const ChunkGrid& grid);

 private:
  // A chunk's file. `direct`: it is open with O_DIRECT.
  struct File {
    Fd fd;
    std::string name;
    std::uint64_t size = 0;
    bool direct = false;
  };
  // Bytes of a file, in the memory of this reader.
  using Stored = std::span<const std::byte>;

  static std::uint64_t most_stored(const ChunkGrid& grid);
  // Throws if the missing file of a chunk does not mean "never written": if it is a link that leads
  // nowhere, or if the array's folder no longer has its metadata.
  void require_absence(const std::string& file) const;
  // Empty if there is no such file.
  std::optional<File> open(const std::string& name);
  static std::optional<File> open_as(const std::string& name, int flags);
  Stored load(File& file, std::uint64_t offset, std::uint64_t length);
  std::optional<Stored> load_aligned(const File& file, std::uint64_t offset, std::uint64_t length);
  std::shared_ptr<const ShardIndex> index_of(File& file);
  // Decodes the chunk at `at`. Returns false if it was never written.
  bool decode(const std::vector<std::uint64_t>& at, std::span<std::byte> out);
  void place(const std::vector<std::uint64_t>& at, const std::byte* chunk, std::byte* block) const;

  const ChunkGrid& grid_;
  ShardIndexes& indexes_;
  Counters& counters_;
  const std::unique_ptr<Decoder> decoder_;
  Pages stored_, chunk_;
};

}  // namespace evenkeel
