// For tests: records the reads that the engine `direct` makes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/sys.h"
#include "engine/queue.h"

namespace evenkeel {

// Records the reads of engines that are created while it exists. Several threads may read. One at a
// time, and it must outlive those engines.
class RecordedReads {
 public:
  RecordedReads() {
    instance = this;
    queue_wrapper = &wrap;
  }
  ~RecordedReads() {
    queue_wrapper = nullptr;
    instance = nullptr;
  }
  RecordedReads(const RecordedReads&) = delete;
  RecordedReads& operator=(const RecordedReads&) = delete;

  // Forgets them.
  std::vector<ReadOp> take() {
    const MutexLock lock(mutex_);
    most_ = in_flight_;
    return std::exchange(reads_, {});
  }
  std::uint64_t most_in_flight() {  // bytes
    const MutexLock lock(mutex_);
    return most_;
  }

 private:
  class Queue final : public ReadQueue {
   public:
    explicit Queue(std::unique_ptr<ReadQueue> inner) : inner_(std::move(inner)) {}
    void push(const ReadOp& op) override {
      lengths_[op.id] = op.length;
      instance->note(op);
      inner_->push(op);
    }
    std::size_t wait(std::size_t enough, std::span<Completion> out) override {
      const std::size_t count = inner_->wait(enough, out);
      for (const Completion& done : out.first(count)) instance->end(lengths_[done.id]);
      return count;
    }
    void abandon() noexcept override { inner_->abandon(); }
    std::uint32_t depth() const override { return inner_->depth(); }
    std::string describe() const override { return inner_->describe(); }

   private:
    const std::unique_ptr<ReadQueue> inner_;
    std::map<std::uint32_t, std::uint64_t> lengths_;
  };

  static std::unique_ptr<ReadQueue> wrap(std::unique_ptr<ReadQueue> inner) {
    return std::make_unique<Queue>(std::move(inner));
  }
  void note(const ReadOp& op) {
    const MutexLock lock(mutex_);
    reads_.push_back(op);
    in_flight_ += op.length;
    most_ = std::max(most_, in_flight_);
  }
  void end(std::uint64_t bytes) {
    const MutexLock lock(mutex_);
    in_flight_ -= bytes;
  }

  inline static RecordedReads* instance = nullptr;
  Mutex mutex_;
  std::vector<ReadOp> reads_ GUARDED_BY(mutex_);
  std::uint64_t in_flight_ GUARDED_BY(mutex_) = 0, most_ GUARDED_BY(mutex_) = 0;
};

// Whether the read goes to memory that begins with a page.
inline bool begins_at_page(const ReadOp& read) {
  return reinterpret_cast<std::uintptr_t>(read.buffer) % sys::page_size() == 0;
}

}  // namespace evenkeel
