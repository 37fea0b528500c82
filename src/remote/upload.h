// Objects that are written to a bucket: S3's multipart upload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "base/mutex.h"
#include "evenkeel/budget.h"
#include "remote/store.h"

namespace evenkeel {

// Bytes from the beginning to the end of an object. Parts that are full are sent by a thread,
// several at a time, while the caller fills the next; a part that fails is sent again. The first
// part is kept until the end, so that a header can be written last. Nobody sees the object before
// `commit`; one of that name stays until then.
//
// Not thread-safe, and not to be used in a child of fork, not even its destructor. Memory: buffers
// of parts, reserved from the budget when it is made.
class Upload {
 public:
  static constexpr std::uint64_t kLeastPart = 5 << 20, kMostParts = 10'000;  // S3's limits

  // Takes at most three quarters of what is left of the budget, and 256 MiB where that is enough
  // for `expected` bytes. `while_waiting` is called every 50 ms of a wait; what it throws ends the
  // wait. Throws Error: kInvalid for a URL that is not s3://, kBudget where three parts do not fit.
  Upload(const std::string& url, const Budget& budget, std::uint64_t expected,
         std::function<void()> while_waiting);
  ~Upload();  // aborts what was not committed
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // What must be left of the budget for an object of so many bytes.
  static std::uint64_t least_budget(std::uint64_t expected);
  // Throws Error (kInvalid) for a URL that no object can be written to.
  static void require_writable(const std::string& url);
  // Begins an upload and drops it: throws the Error that a real one would, where the server or the
  // bucket does not let it.
  static void try_out(const std::string& url, const std::function<void()>& while_waiting);

  const std::string& url() const { return url_; }
  std::uint64_t size() const { return size_; }
  std::string describe() const;  // "multipart upload, parts of 8 MiB, 6 at a time"

  void append(std::span<const std::byte> bytes);
  // Throws Error (kInvalid) unless all these bytes were appended and are still here: in the first
  // part, or in the last.
  void require_here(std::uint64_t offset, std::uint64_t length) const;
  // Of such bytes.
  void rewrite(std::uint64_t offset, std::span<const std::byte> bytes);
  // The server has everything. Throws Error.
  void complete();
  // The object appears under its name.
  void commit();
  // What was sent is dropped. An answer is not waited for for long.
  void abort() noexcept;

 private:
  struct Part {
    std::byte* memory = nullptr;
    std::uint64_t number = 0, length = 0;  // numbers count from 1
  };
  class PartTransfer;
  void work() EXCLUDES(mutex_);
  void send(const Part& part) EXCLUDES(mutex_);
  std::byte* take() EXCLUDES(mutex_);
  void wait() REQUIRES(mutex_);
  void require_new_object(const std::string& old) const;
  std::uint64_t part_start(std::uint64_t number) const { return (number - 1) * part_bytes_; }

  const std::string url_;
  const Address address_;
  const std::shared_ptr<Store> store_;
  const std::function<void()> while_waiting_;
  std::uint64_t part_bytes_ = 0, parts_at_once_ = 0;
  PageBuffer memory_;
  Reservation connections_;
  std::string id_;  // of the upload; empty: it was committed or aborted
  std::uint64_t size_ = 0;
  Part first_, current_;  // memory of first_ is null after it was sent
  Mutex mutex_;
  CondVar work_, done_;
  std::deque<Part> jobs_ GUARDED_BY(mutex_);
  std::vector<std::byte*> free_ GUARDED_BY(mutex_);
  std::vector<std::string> tags_ GUARDED_BY(mutex_);  // of parts, as the server named them
  std::uint64_t unfinished_ GUARDED_BY(mutex_) = 0;
  bool ending_ GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace evenkeel
