#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <vector>

#include "base/fault_hook.h"
#include "base/mutex.h"
#include "base/signals.h"
#include "base/sys.h"
#include "engine/queue.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

class ThreadQueue final : public ReadQueue {
 public:
  explicit ThreadQueue(std::uint32_t threads) {
    threads_.reserve(threads);  // push_back must not fail after a thread was started
    done_.reserve(threads);     // nor on a thread: no more reads than that are in flight
    const SignalsBlocked blocked;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 10);  // small: they count against the budget
    for (std::uint32_t i = 0; i < threads; ++i) {
      pthread_t thread;
      if (sys::injected_error(sys::Call::kThreadStart) != 0 ||
          pthread_create(&thread, &attributes, &ThreadQueue::work, this) != 0) {
        break;
      }
      threads_.push_back(thread);
    }
    pthread_attr_destroy(&attributes);
  }

  ~ThreadQueue() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_workers_.notify_all();
    for (pthread_t thread : threads_) pthread_join(thread, nullptr);
  }
  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;

  void push(const ReadOp& op) override { pushed_.push_back(op); }

  std::size_t wait(std::size_t enough, std::span<Completion> out) override {
    if (threads_.empty()) return read_here(out);
    const MutexLock lock(mutex_);
    waiting_.insert(waiting_.end(), pushed_.begin(), pushed_.end());
    pushed_.clear();
    wake_workers_.notify_all();
    enough_ = std::min(enough, out.size());
    while (done_.size() < enough_) wake_owner_.wait(mutex_);
    const std::size_t count = std::min(done_.size(), out.size());
    std::copy_n(done_.begin(), count, out.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }

  std::uint32_t depth() const override {
    return std::max<std::uint32_t>(1, static_cast<std::uint32_t>(threads_.size()));
  }
  std::string describe() const override {
    if (threads_.empty()) return "one read at a time (no thread could be started)";
    return std::to_string(threads_.size()) + " threads";
  }

 private:
  static Completion perform(const ReadOp& op) {
    ssize_t got;
    do {
      got = sys::pread(op.fd, op.buffer, op.length, op.offset);
    } while (got < 0 && errno == EINTR);
    return {op.id, got < 0 ? -errno : static_cast<std::int32_t>(got)};
  }

  std::size_t read_here(std::span<Completion> out) {
    std::size_t count = 0;
    while (count < out.size() && !pushed_.empty()) {
      out[count++] = perform(pushed_.front());
      pushed_.pop_front();
    }
    return count;
  }

  static void* work(void* self) {
    static_cast<ThreadQueue*>(self)->work();
    return nullptr;
  }

  void work() {
    MutexLock lock(mutex_);
    while (true) {
      while (!stopping_ && waiting_.empty()) wake_workers_.wait(mutex_);
      if (stopping_) return;
      const ReadOp op = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const Completion completion = perform(op);
      lock.lock();
      done_.push_back(completion);
      if (done_.size() >= enough_) wake_owner_.notify_one();
    }
  }

  std::vector<pthread_t> threads_;
  std::deque<ReadOp> pushed_;  // used by the caller of push and wait only
  Mutex mutex_;
  CondVar wake_workers_, wake_owner_;
  std::deque<ReadOp> waiting_ GUARDED_BY(mutex_);
  std::vector<Completion> done_ GUARDED_BY(mutex_);
  std::size_t enough_ GUARDED_BY(mutex_) = 1;
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace

std::unique_ptr<ReadQueue> make_thread_queue(std::uint32_t threads) {
  return std::make_unique<ThreadQueue>(threads);
}

}  // namespace evenkeel
