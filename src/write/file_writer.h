// Writes one file: mostly from its beginning to its end, and here and there again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "evenkeel/budget.h"
#include "evenkeel/write.h"
#include "remote/upload.h"
#include "write/checksums.h"
#include "write/output_file.h"
#include "write/write_queue.h"

namespace evenkeel {

struct FileWriterOptions {
  Budget budget = {};
  std::uint64_t memory = 16 << 20;  // the most bytes of the budget to take
  bool checksums = false;           // PATH.xxh3, written when the file is complete
  bool resume = false;              // goes on at the last checkpoint, if there is one
  bool allow_direct = true;
  std::function<void()> while_waiting = {};  // see WriteQueue
  std::uint64_t expected_bytes = 0;          // see WriteOptions
};

// A path that begins with s3:// names an object, which is uploaded in parts: it is written from its
// beginning to its end, but for its first and last part, and there are no checkpoints.
//
// Not thread-safe. Memory: the buffers of its queue, from the budget. A file that is neither
// completed nor has a checkpoint is removed when this goes. In a child of fork it does nothing.
class FileWriter {
 public:
  FileWriter(const std::string& path, const FileWriterOptions& options);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  const std::string& path() const { return upload_ ? upload_->url() : file_->path(); }
  std::uint64_t size() const { return upload_ ? upload_->size() : start_ + fill_; }
  // The checkpoint it goes on from. Its kind must be checked by the caller.
  const std::optional<Checkpoint>& checkpoint() const {
    static const std::optional<Checkpoint> kNone;
    return upload_ ? kNone : file_->checkpoint();
  }
  std::string describe() const;  // "O_DIRECT, 4 threads, 16 blocks of 1 MiB"

  // Throws Error (kInvalid) for a URL that cannot be written to, or not with these options.
  static void require_writable(const std::string& path, const WriteOptions& options);

  // Takes room for so many bytes at once: a full disk shows now.
  void expect_size(std::uint64_t bytes) {
    if (file_) file_->allocate(bytes, bytes);
  }
  void append(std::span<const std::byte> bytes);
  // Anywhere. What lies between the end and `offset` is zeros.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  // Zeros up to this size.
  void extend(std::uint64_t size);
  // Of what was written so far.
  void read_at(std::uint64_t offset, std::span<std::byte> bytes);
  // What lies behind `size` is written again. Not with checksums.
  void rewind(std::uint64_t size);
  // All that was written so far stays, whatever happens: a later writer can resume here.
  void save(Checkpoint checkpoint);  // its size is filled in

  // Everything is on the disk under the partial name; `commit` gives it the final one. In two steps
  // for those who write several files that belong together.
  void complete();
  void commit();
  void discard() noexcept;

 private:
  void require_usable() const;
  void require_file(const char* what) const;  // an object cannot do this
  void flush();                               // also the last block, which goes on being filled
  void rewrite(std::uint64_t offset, std::span<const std::byte> bytes);
  void move_end(std::uint64_t offset);
  void submit();
  template <class Work>
  void guarded(Work work);
  void take_checksums();

  const Budget budget_;
  const std::uint64_t generation_;  // of fork
  std::unique_ptr<Upload> upload_;  // of an object; else the next two
  std::unique_ptr<OutputFile> file_;
  std::unique_ptr<WriteQueue> queue_;
  std::byte* block_ = nullptr;  // bytes start_ .. start_ + fill_ - 1 of the file
  std::uint64_t start_ = 0, fill_ = 0;
  std::optional<RunningChecksums> checksums_;
  std::string checksums_text_;
  bool failed_ = false, completed_ = false;
};

}  // namespace evenkeel
