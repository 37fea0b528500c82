// A file that is being written. It is called PATH.partial until it is complete, and is then renamed
// in one step.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"

namespace evenkeel {

// A checkpoint of a file: how much of it is on the disk, and what its writer needs to continue.
struct Checkpoint {
  std::uint64_t size = 0;  // bytes of the file that are on the disk
  std::string kind;        // what is being written; only the same kind is resumed
  std::string numbers;     // of the writer
  std::string state;       // of the user
};

// Writes with O_DIRECT if the filesystem supports it. Otherwise each write goes through the page
// cache, is written back and then dropped from the cache. Offset, length and memory of reads and
// writes must be multiples of kAlignment. `read` and `write` may be called by several threads.
class OutputFile {
 public:
  static constexpr std::uint64_t kAlignment = 4096;

  // Opens PATH.partial and locks it against other writers. With `resume`, its content up to the
  // last checkpoint is kept; without `resume` or a checkpoint, it begins empty. Throws Error.
  OutputFile(const std::string& path, bool resume, bool allow_direct = true);
  // Opens PATH.partial for reading only, up to its checkpoint. Several processes may do so.
  struct ReadOnly {};
  OutputFile(const std::string& path, ReadOnly);
  // Removes the file unless it was committed or has a checkpoint.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }
  const std::string& partial_path() const { return partial_; }
  bool direct() const { return direct_.load(std::memory_order_relaxed); }
  // The checkpoint that was found at open.
  const std::optional<Checkpoint>& checkpoint() const { return checkpoint_; }

  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  void read(std::uint64_t offset, std::span<std::byte> bytes);  // zeros beyond the end
  // Allocates disk space for the first `wanted` bytes, or only for `needed` if there is not enough,
  // so that a full disk is reported early and writes run in parallel.
  void allocate(std::uint64_t needed, std::uint64_t wanted);
  // Frees the disk space of a range, if the filesystem supports that.
  void punch(std::uint64_t offset, std::uint64_t length);
  void resize(std::uint64_t bytes);
  void sync();
  // Stores a checkpoint, so that the file is kept for a later resume. Call `sync` first.
  void save(const Checkpoint& checkpoint);
  // Renames the file to its final name. Call `sync` first.
  void commit();
  // Removes the partial file and its checkpoint.
  void discard() noexcept;

 private:
  void open_partial(bool resume, bool allow_direct);
  void read_checkpoint();
  void end_direct();
  std::string state_path() const { return partial_ + ".state"; }

  const std::string asked_path_, path_, partial_;
  Fd fd_;
  std::atomic<bool> direct_ = false;
  std::optional<Checkpoint> checkpoint_;
  std::atomic<std::uint64_t> allocated_ = 0;
  bool can_allocate_ = true;
  bool saved_ = false, gone_ = false;  // kept for a resume; renamed or removed
};

// Replaces a small file in one step: a reader finds the old text or the new one, even after a
// crash.
void replace_file(const std::string& path, const std::string& text);
// Removes such a file, and what a process that was killed meanwhile left of the next one.
void remove_replaced(const std::string& path) noexcept;

// The error for a failed write. If the disk is full, it says how much is free.
class Error;
Error write_error(const std::string& path, int code, std::uint64_t offset, std::uint64_t length);

}  // namespace evenkeel
