#include "engine/queue.h"

#ifndef EVENKEEL_HAVE_URING

namespace evenkeel {

std::unique_ptr<ReadQueue> make_uring_queue(std::uint32_t, std::span<std::byte>, std::size_t,
                                            std::string& why_not) {
  why_not = "built without liburing";
  return nullptr;
}

}  // namespace evenkeel

#else

#include <liburing.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

#include "base/fault_hook.h"
#include "base/retry_policy.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

// Returns -errno, as liburing does, if a test injects an error; otherwise the result of the call.
template <class RealCall>
int unless_injected(sys::Call call, RealCall real) {
  if (const int code = sys::injected_error(call)) return -code;
  return real();
}

class UringQueue final : public ReadQueue {
 public:
  UringQueue(const io_uring& ring, std::uint32_t depth) : ring_(ring), depth_(depth) {}
  ~UringQueue() override { io_uring_queue_exit(&ring_); }
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  void register_with_kernel(std::span<std::byte> arena, std::size_t files) {
    // A child of fork must not inherit the memory of this ring.
    io_uring_ring_dontfork(&ring_);
    if (!arena.empty()) {
      const iovec all{arena.data(), arena.size()};
      if (registered([&] { return io_uring_register_buffers(&ring_, &all, 1); }) == 0) {
        arena_ = arena;
      }
    }
    if (files > 0) {
      const std::vector<int> none(files, -1);
      const auto count = static_cast<unsigned>(files);
      if (registered([&] { return io_uring_register_files(&ring_, none.data(), count); }) == 0) {
        registered_.assign(files, -1);
      }
    }
  }

  void push(const ReadOp& op) override {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    const bool in_arena =
        !arena_.empty() && op.buffer >= arena_.data() && op.buffer < arena_.data() + arena_.size();
    const bool fixed_file = op.file < registered_.size() && register_file(op.file, op.fd);
    const int target = fixed_file ? static_cast<int>(op.file) : op.fd;
    if (in_arena) {
      io_uring_prep_read_fixed(entry, target, op.buffer, op.length, op.offset, 0);
    } else {
      io_uring_prep_read(entry, target, op.buffer, op.length, op.offset);
    }
    if (fixed_file) entry->flags |= IOSQE_FIXED_FILE;
    entry->user_data = op.id;
    ++outstanding_;
  }

  std::size_t wait(std::size_t enough, std::span<Completion> out) override {
    int code;
    RetryPolicy retry;  // the kernel may have no memory for a request at the moment
    do {
      code = unless_injected(sys::Call::kRingEnter, [&] {
        return io_uring_submit_and_wait(&ring_, static_cast<unsigned>(enough));
      });
    } while (code < 0 && io_uring_cq_ready(&ring_) == 0 && retry.try_again(-code));
    // Return completions first. If the error persists, the next call reports it.
    if (code < 0 && io_uring_cq_ready(&ring_) == 0) throw Error::system("io_uring_enter", -code);
    return take(out);
  }

  void abandon() noexcept override {
    // Completions appear in memory shared with the kernel. Requests that were not submitted yet are
    // never submitted, so only the others are waited for.
    for (std::size_t left = outstanding_ - io_uring_sq_ready(&ring_); left > 0;) {
      Completion done[16];
      const std::size_t count = take(done);
      left -= count;
      if (count == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  std::uint32_t depth() const override { return depth_; }

  std::string describe() const override {
    std::string text = "io_uring, " + std::to_string(depth_) + " in flight";
    if (!registered_.empty() && !arena_.empty()) return text + ", registered files and buffers";
    if (!registered_.empty()) return text + ", registered files (buffers: memlock limit)";
    if (!arena_.empty()) return text + ", registered buffers";
    return text;
  }

 private:
  std::size_t take(std::span<Completion> out) noexcept {
    std::size_t count = 0;
    unsigned head;
    io_uring_cqe* entry;
    io_uring_for_each_cqe(&ring_, head, entry) {
      if (count == out.size()) break;
      out[count++] = {static_cast<std::uint32_t>(entry->user_data), entry->res};
    }
    io_uring_cq_advance(&ring_, static_cast<unsigned>(count));
    outstanding_ -= count;
    return count;
  }

  template <class RealCall>
  static int registered(RealCall real) {
    return unless_injected(sys::Call::kRingRegister, real);
  }

  bool register_file(std::uint32_t file, int fd) {
    if (registered_[file] == fd) return true;
    const bool done =
        registered([&] { return io_uring_register_files_update(&ring_, file, &fd, 1); }) == 1;
    registered_[file] = done ? fd : -1;  // a failed update leaves the entry empty
    return done;
  }

  io_uring ring_;
  const std::uint32_t depth_;
  std::size_t outstanding_ = 0;  // pushed, but not returned as completed yet
  std::span<std::byte> arena_;   // empty: not registered
  std::vector<int> registered_;  // the descriptor of each registered file
};

}  // namespace

std::unique_ptr<ReadQueue> make_uring_queue(std::uint32_t depth, std::span<std::byte> arena,
                                            std::size_t files, std::string& why_not) {
  io_uring ring{};
  // Cooperative task running saves an interrupt per read; kernels before 5.19 do not support it.
  const auto set_up = [&](unsigned flags) {
    return unless_injected(sys::Call::kRingSetup,
                           [&] { return io_uring_queue_init(depth, &ring, flags); });
  };
  // TASKRUN_FLAG: the kernel sets a flag when a system call is needed to get completions.
  int code = set_up(IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
  if (code == -EINVAL) code = set_up(0);
  if (code < 0) {
    // Newer kernels count the ring itself as locked memory.
    why_not = code == -ENOMEM
                  ? "no memory for io_uring: memlock limit (ulimit -l) or memory cgroup"
                  : "io_uring is not allowed here (" + std::generic_category().message(-code) + ")";
    return nullptr;
  }
  auto queue = std::make_unique<UringQueue>(ring, depth);
  queue->register_with_kernel(arena, files);
  return queue;
}

}  // namespace evenkeel

#endif
