// Many streams of bytes in one scratch file: items are distributed to them by their keys.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/budget.h"
#include "write/output_file.h"
#include "write/write_queue.h"

namespace evenkeel {

struct BucketSize {
  std::uint64_t buckets = 0, block_bytes = 0;
  std::uint64_t extent_blocks = 16;  // room on the disk is taken in pieces of so many
};

// Buckets to be read. `read` may come from several threads at once.
class BucketReader {
 public:
  // Bytes of a bucket that hold whole items. They begin at a multiple of the alignment.
  struct Segment {
    std::uint64_t begin = 0, end = 0;
  };

  virtual ~BucketReader() = default;
  virtual std::uint64_t count() const = 0;  // of buckets
  virtual const std::string& path() const = 0;
  virtual std::uint64_t bytes(std::uint64_t bucket) const = 0;  // to the end of its last segment
  virtual std::vector<Segment> segments(std::uint64_t bucket) const = 0;
  // Fills `out` with bytes of a bucket from `offset` on, a multiple of the alignment; returns how
  // many of them the bucket has.
  virtual std::uint64_t read(std::uint64_t bucket, std::uint64_t offset,
                             std::span<std::byte> out) = 0;
};

// Each bucket fills a block of memory, and full blocks are written to extents of the bucket's own,
// several blocks each. All calls but `read` come from one thread; `read` may come from several at
// once.
class Buckets final : public BucketReader {
 public:
  static constexpr std::uint64_t kSpareBlocks = 8, kThreads = 4;
  static std::uint64_t memory(const BucketSize& size) {
    return (size.buckets + kSpareBlocks + kThreads) * size.block_bytes;
  }

  // Opens the file, which is removed when this goes, unless it has a checkpoint.
  Buckets(const std::string& path, bool resume);
  // Opens buckets [first, end) of a file that another run made and saved, to be read only.
  Buckets(const std::string& path, std::uint64_t first, std::uint64_t end);

  // The checkpoint it goes on from.
  const std::optional<Checkpoint>& checkpoint() const { return file_.checkpoint(); }
  // Memory for adding items. After a checkpoint its numbers say the size.
  void begin(const Budget& budget, const BucketSize& size);
  const BucketSize& size() const { return size_; }
  std::uint64_t count() const override { return size_.buckets; }
  const std::string& path() const override { return file_.path(); }

  void add(std::uint64_t bucket, std::span<const std::byte> bytes);
  // Both, one behind the other.
  void add(std::uint64_t bucket, std::span<const std::byte> head, std::span<const std::byte> body);
  // All that was added is on the disk; a later run goes on with `state`.
  void save(const std::string& kind, const std::string& state);
  void end_adding();  // after `save`: gives the memory back

  std::uint64_t bytes(std::uint64_t bucket) const override {
    return buckets_[bucket - first_].bytes;
  }
  std::vector<Segment> segments(std::uint64_t bucket) const override {
    return {{0, bytes(bucket)}};
  }
  std::uint64_t read(std::uint64_t bucket, std::uint64_t offset, std::span<std::byte> out) override;
  std::uint64_t index_bytes() const;  // of memory: where the buckets lie
  void free(std::uint64_t bucket);    // its room on the disk
  void discard() noexcept { file_.discard(); }

 private:
  struct Bucket {
    std::byte* block = nullptr;
    std::uint64_t fill = 0;   // of the block
    std::uint64_t bytes = 0;  // in all
    std::vector<std::uint64_t> extents;
  };
  std::uint64_t extent_bytes() const { return size_.block_bytes * size_.extent_blocks; }
  std::uint64_t place_of(Bucket& bucket, std::uint64_t offset);
  void write_block(Bucket& bucket);
  std::string numbers() const;
  void read_numbers(const std::string& text);

  OutputFile file_;
  std::unique_ptr<WriteQueue> queue_;
  BucketSize size_;
  std::uint64_t first_ = 0;  // of the buckets that are known; others than 0 are only read
  std::vector<Bucket> buckets_;
  std::uint64_t extents_ = 0;
};

// The scratch file of work on `output`: in the folder, or beside it where that is empty.
std::string scratch_file(const std::string& output, const std::string& folder,
                         std::string_view ending);
// Throws Error (ENOSPC) when the disk of a scratch file has less room than this.
void require_room(std::string_view operation, const std::string& scratch, std::uint64_t bytes);

}  // namespace evenkeel
