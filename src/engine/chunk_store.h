// Blocks of an array in chunks: read from their files, decoded and put together.
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

// Where the chunks of a shard lie: offset and length of each, as stored.
using ShardIndex = std::vector<std::uint64_t>;

// The indexes of the shards that were read last. Thread-safe.
class ShardIndexes {
 public:
  explicit ShardIndexes(std::size_t most) : most_(most) {}
  std::shared_ptr<const ShardIndex> find(const std::string& file) EXCLUDES(mutex_);
  // The index that is held from now on: that of another thread, if it was first.
  std::shared_ptr<const ShardIndex> add(const std::string& file,
                                        std::shared_ptr<const ShardIndex> index) EXCLUDES(mutex_);

 private:
  std::shared_ptr<const ShardIndex> held(const std::string& file) REQUIRES(mutex_);

  struct Entry {
    std::string file;
    std::shared_ptr<const ShardIndex> index;
  };
  const std::size_t most_;
  Mutex mutex_;
  std::list<Entry> entries_ GUARDED_BY(mutex_);  // the last used first
};

// Reads blocks for one thread. Its memory is reserved by its owner. `grid`, `indexes` and the
// counters must outlive it.
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

  // Bytes of a block in memory; the last one is no shorter.
  static std::uint64_t block_size(const ChunkGrid& grid);
  // What a reader takes at most.
  static std::uint64_t memory(const ChunkGrid& grid);
  static std::uint64_t index_bytes(const ChunkGrid& grid);

 private:
  // A chunk's file, how long it is, and whether it takes aligned reads that pass the page cache by.
  struct File {
    Fd fd;
    std::string name;
    std::uint64_t size = 0;
    bool direct = false;
  };
  // Bytes of a file, in memory of this reader.
  using Stored = std::span<const std::byte>;

  static std::uint64_t most_stored(const ChunkGrid& grid);
  // Throws unless the array's folder still holds its metadata: chunks that are missing elsewhere
  // were not left out by who wrote them.
  void require_metadata() const;
  // Empty: there is no such file.
  std::optional<File> open(const std::string& name);
  static std::optional<File> open_as(const std::string& name, int flags);
  Stored load(File& file, std::uint64_t offset, std::uint64_t length);
  std::optional<Stored> load_aligned(const File& file, std::uint64_t offset, std::uint64_t length);
  std::shared_ptr<const ShardIndex> index_of(File& file);
  // Decodes the chunk at `at`. False: it was never written.
  bool decode(const std::vector<std::uint64_t>& at, std::span<std::byte> out);
  void place(const std::vector<std::uint64_t>& at, const std::byte* chunk, std::byte* block) const;

  const ChunkGrid& grid_;
  ShardIndexes& indexes_;
  Counters& counters_;
  const std::unique_ptr<Decoder> decoder_;
  Pages stored_, chunk_;
};

}  // namespace evenkeel
