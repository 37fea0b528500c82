// Writes one file, mostly from its beginning to its end, with changes anywhere.
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
  std::uint64_t memory = 16 << 20;  // takes at most this much of the budget
  bool checksums = false;           // writes PATH.xxh3 when the file is complete
  bool resume = false;              // continues at the last checkpoint, if there is one
  bool allow_direct = true;
  std::function<void()> while_waiting = {};  // see WriteQueue
  std::uint64_t expected_bytes = 0;          // see WriteOptions
};

// A path that begins with s3:// names an object, which is uploaded in parts. It is written from its
// beginning to its end; only its first and last part can be changed, and there are no checkpoints.
//
// Not thread-safe. The buffers of its queue are reserved from the budget. The destructor removes a
// file that is neither completed nor has a checkpoint. In a child of fork it does nothing.
class FileWriter {
 public:
  FileWriter(const std::string& path, const FileWriterOptions& options);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  const std::string& path() const { return upload_ ? upload_->url() : file_->path(); }
  std::uint64_t size() const { return upload_ ? upload_->size() : start_ + fill_; }
  // The checkpoint at which it continues. The caller must check its kind.
  const std::optional<Checkpoint>& checkpoint() const {
    static const std::optional<Checkpoint> kNone;
    return upload_ ? kNone : file_->checkpoint();
  }
  std::string describe() const;  // "O_DIRECT, 4 threads, 16 blocks of 1 MiB"

  // Throws Error (kInvalid) for a URL that cannot be written to with these options.
  static void require_writable(const std::string& path, const WriteOptions& options);

  // Allocates disk space for all `bytes`, so that a full disk is reported now.
  void expect_size(std::uint64_t bytes) {
    if (file_) file_->allocate(bytes, bytes);
  }
  void append(std::span<const std::byte> bytes);
  // Writes anywhere. A gap between the end and `offset` is filled with zeros.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  // Appends zeros up to this size.
  void extend(std::uint64_t size);
  // Reads bytes that were written before.
  void read_at(std::uint64_t offset, std::span<std::byte> bytes);
  // Drops everything after `size` bytes. Not with checksums.
  void rewind(std::uint64_t size);
  // Makes a checkpoint of everything written so far, at which a later writer can resume. Sets the
  // size of the checkpoint.
  void save(Checkpoint checkpoint);

  // Puts everything on the disk under the partial name; `commit` gives it the final one. These are
  // two steps for callers that write several files that belong together.
  void complete();
  void commit();
  void discard() noexcept;

 private:
  void require_usable() const;
  void require_file(const char* what) const;  // throws for objects, which do not support this
  void flush();                               // also writes the last block, which may grow later
  void rewrite(std::uint64_t offset, std::span<const std::byte> bytes);
  void move_end(std::uint64_t offset);
  void submit();
  template <class Work>
  void guarded(Work work);
  void take_checksums();

  const Budget budget_;
  const std::uint64_t generation_;  // of fork
  std::unique_ptr<Upload> upload_;  // for an object; otherwise the next two are set
  std::unique_ptr<OutputFile> file_;
  std::unique_ptr<WriteQueue> queue_;
  std::byte* block_ = nullptr;  // bytes start_ .. start_ + fill_ - 1 of the file
  std::uint64_t start_ = 0, fill_ = 0;
  std::optional<RunningChecksums> checksums_;
  std::string checksums_text_;
  bool failed_ = false, completed_ = false;
};

}  // namespace evenkeel
