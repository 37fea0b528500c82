// A file that is being written. It has the name PATH.partial until it is complete, and then gets
// its own name in one step.
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

// What a checkpoint of a file says: how much of it is good, and what its writer needs to go on.
struct Checkpoint {
  std::uint64_t size = 0;  // bytes of the file that are on the disk
  std::string kind;        // what is being written; another kind is not resumed
  std::string numbers;     // of the writer
  std::string state;       // of the user
};

// Direct writes where the filesystem takes them. Otherwise writes go through the page cache and are
// pushed to the disk and dropped from the cache one by one. Reads and writes are aligned: offset,
// length and memory are multiples of kAlignment. `read` and `write` may come from several threads.
class OutputFile {
 public:
  static constexpr std::uint64_t kAlignment = 4096;

  // Opens PATH.partial, and locks it against other writers. With `resume`, what it holds stays up
  // to the last checkpoint; without one, or without `resume`, it begins empty. Throws Error.
  OutputFile(const std::string& path, bool resume, bool allow_direct = true);
  // Opens PATH.partial as a checkpoint left it, to be read only: by several processes at once.
  struct ReadOnly {};
  OutputFile(const std::string& path, ReadOnly);
  // Removes the file if it was neither committed nor kept.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }
  const std::string& partial_path() const { return partial_; }
  bool direct() const { return direct_.load(std::memory_order_relaxed); }
  // The checkpoint that was found, when it was opened to resume.
  const std::optional<Checkpoint>& checkpoint() const { return checkpoint_; }

  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  void read(std::uint64_t offset, std::span<std::byte> bytes);  // zeros beyond the end
  // Takes room for so many bytes in all, so that a full disk shows early and writes run in
  // parallel. `needed` is what must fit; the rest is taken where there is room.
  void allocate(std::uint64_t needed, std::uint64_t wanted);
  void punch(std::uint64_t offset,
             std::uint64_t length);  // gives room back, where that is possible
  void resize(std::uint64_t bytes);
  void sync();
  // Keeps the file for a later resume. The data must have been synced before.
  void save(const Checkpoint& checkpoint);
  // Gives the file its name, for good. Its contents must have been synced.
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

// Writes a small file in one step: a reader finds the old text or the new one, and after a crash,
// too.
void replace_file(const std::string& path, const std::string& text);
// Removes such a file, and what a process that was killed meanwhile left of the next one.
void remove_replaced(const std::string& path) noexcept;

// The error of a write: with what is free on the disk, when it is full.
class Error;
Error write_error(const std::string& path, int code, std::uint64_t offset, std::uint64_t length);

}  // namespace evenkeel
