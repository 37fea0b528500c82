// Writes objects to a bucket with S3's multipart upload.
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

// Writes an object from its beginning to its end. A thread sends full parts, several at a time,
// while the caller fills the next one; a part that fails is sent again. The first part is kept
// until the end, so that a header can be written last. The object appears at `commit`; until then
// an old object of the same name stays.
//
// Not thread-safe. Must not be used in a child of fork; not even its destructor may run there. The
// buffers of parts are reserved from the budget by the constructor.
class Upload {
 public:
  static constexpr std::uint64_t kLeastPart = 5 << 20, kMostParts = 10'000;  // S3's limits

  // Takes at most three quarters of the budget that is left, and at most 256 MiB if that is enough
  // for `expected` bytes. `while_waiting` is called every 50 ms of a wait; an exception from it
  // ends the wait. Throws Error: kInvalid for a URL that is not s3://, kBudget if three parts do
  // not fit.
  Upload(const std::string& url, const Budget& budget, std::uint64_t expected,
         std::function<void()> while_waiting);
  ~Upload();  // aborts unless committed
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // How much of the budget must be left for an object of `expected` bytes.
  static std::uint64_t least_budget(std::uint64_t expected);
  // Throws Error (kInvalid) for a URL that no object can be written to.
  static void require_writable(const std::string& url);
  // Begins an upload and drops it. Throws the Error that a real upload would throw if the server or
  // the bucket does not allow it.
  static void try_out(const std::string& url, const std::function<void()>& while_waiting);

  const std::string& url() const { return url_; }
  std::uint64_t size() const { return size_; }
  std::string describe() const;  // "multipart upload, parts of 8 MiB, 6 at a time"

  void append(std::span<const std::byte> bytes);
  // Throws Error (kInvalid) unless all these bytes were appended and are still in memory: in the
  // first part or in the last.
  void require_here(std::uint64_t offset, std::uint64_t length) const;
  // Overwrites bytes that are still in memory (see require_here).
  void rewrite(std::uint64_t offset, std::span<const std::byte> bytes);
  // Sends what is left and waits until the server has everything. Throws Error.
  void complete();
  // Makes the object appear under its name. Throws Error.
  void commit();
  // Drops what was sent. Waits only a short time for the server's answer.
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
  std::string id_;  // of the upload; empty after commit or abort
  std::uint64_t size_ = 0;
  Part first_, current_;  // memory of first_ is null after it was sent
  Mutex mutex_;
  CondVar work_, done_;
  std::deque<Part> jobs_ GUARDED_BY(mutex_);
  std::vector<std::byte*> free_ GUARDED_BY(mutex_);
  std::vector<std::string> tags_ GUARDED_BY(mutex_);  // the ETags of the parts
  std::uint64_t unfinished_ GUARDED_BY(mutex_) = 0;
  bool ending_ GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace evenkeel
