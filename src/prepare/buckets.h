// Buckets: many streams of bytes in one scratch file. Items are distributed to them by their keys.
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
  std::uint64_t extent_blocks = 16;  // disk space is allocated in extents of this many blocks
};

// Buckets for reading. `read` may be called by several threads at once.
class BucketReader {
 public:
  // Bytes of a bucket that hold whole items. They begin at a multiple of the alignment.
  struct Segment {
    std::uint64_t begin = 0, end = 0;
  };

  virtual ~BucketReader() = default;
  virtual std::uint64_t count() const = 0;  // of buckets
  virtual const std::string& path() const = 0;
  virtual std::uint64_t bytes(std::uint64_t bucket) const = 0;  // up to the end of the last segment
  virtual std::vector<Segment> segments(std::uint64_t bucket) const = 0;
  // Fills `out` with bytes of a bucket, beginning at `offset`, a multiple of the alignment. Returns
  // how many of them the bucket has.
  virtual std::uint64_t read(std::uint64_t bucket, std::uint64_t offset,
                             std::span<std::byte> out) = 0;
};

// Each bucket fills a block of memory. Full blocks are written to extents of the file, each of
// several blocks and of one bucket. All calls but `read` must come from one thread; `read` may be
// called by several threads at once.
class Buckets final : public BucketReader {
 public:
  static constexpr std::uint64_t kSpareBlocks = 8, kThreads = 4;
  static std::uint64_t memory(const BucketSize& size) {
    return (size.buckets + kSpareBlocks + kThreads) * size.block_bytes;
  }

  // Opens the file. The destructor removes it unless it has a checkpoint.
  Buckets(const std::string& path, bool resume);
  // Opens buckets [first, end) of a file that another run saved, for reading only.
  Buckets(const std::string& path, std::uint64_t first, std::uint64_t end);

  // The checkpoint at which it continues.
  const std::optional<Checkpoint>& checkpoint() const { return file_.checkpoint(); }
  // Allocates memory for adding items. If there is a checkpoint, its size replaces `size`.
  void begin(const Budget& budget, const BucketSize& size);
  const BucketSize& size() const { return size_; }
  std::uint64_t count() const override { return size_.buckets; }
  const std::string& path() const override { return file_.path(); }

  void add(std::uint64_t bucket, std::span<const std::byte> bytes);
  // Adds `head`, then `body`.
  void add(std::uint64_t bucket, std::span<const std::byte> head, std::span<const std::byte> body);
  // Puts everything that was added on the disk. A later run continues with `state`.
  void save(const std::string& kind, const std::string& state);
  void end_adding();  // frees the memory; call after `save`

  std::uint64_t bytes(std::uint64_t bucket) const override {
    return buckets_[bucket - first_].bytes;
  }
  std::vector<Segment> segments(std::uint64_t bucket) const override {
    return {{0, bytes(bucket)}};
  }
  std::uint64_t read(std::uint64_t bucket, std::uint64_t offset, std::span<std::byte> out) override;
  std::uint64_t index_bytes() const;  // memory of the list of extents
  void free(std::uint64_t bucket);    // frees its disk space
  void discard() noexcept { file_.discard(); }

 private:
  struct Bucket {
    std::byte* block = nullptr;
    std::uint64_t fill = 0;   // bytes in the block
    std::uint64_t bytes = 0;  // in all blocks
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
  std::uint64_t first_ = 0;  // the number of buckets_[0]; not 0 only for reading
  std::vector<Bucket> buckets_;
  std::uint64_t extents_ = 0;
};

// The path of a scratch file for `output`: in the folder, or beside `output` if that is empty.
std::string scratch_file(const std::string& output, const std::string& folder,
                         std::string_view ending);
// Throws Error (ENOSPC) if the disk of a scratch file has less free space than this.
void require_room(std::string_view operation, const std::string& scratch, std::uint64_t bytes);

}  // namespace evenkeel
