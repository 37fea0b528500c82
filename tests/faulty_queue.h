// For tests: a queue whose completions are late, reordered, short or failed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/queue.h"

namespace evenkeel {

struct CompletionFault {
  std::string_view name;
  std::int32_t error = 0;  // the read fails with it, although its bytes may have arrived
  std::int32_t at_most = INT32_MAX;
  bool late = false;       // completes after everything that is in the queue now
  bool backwards = false;  // reverses the order of the completions of this wait
  bool harmless = true;
};

// What all queues do. Set it before the engine is created.
struct CompletionScript {
  inline static std::atomic<std::uint64_t> count = 0;
  inline static CompletionFault fault;
  inline static std::uint64_t ordinal = 0;
  inline static bool from_then_on = false, armed = false;
};

class FaultyQueue final : public ReadQueue {
 public:
  explicit FaultyQueue(std::unique_ptr<ReadQueue> inner) : inner_(std::move(inner)) {}
  static std::unique_ptr<ReadQueue> wrap(std::unique_ptr<ReadQueue> inner) {
    return std::make_unique<FaultyQueue>(std::move(inner));
  }

  void push(const ReadOp& op) override {
    inner_->push(op);
    ++inside_;
  }

  std::size_t wait(std::size_t enough, std::span<Completion> out) override {
    // Late completions are returned once nothing else is in flight.
    if (inside_ == 0) {
      const std::size_t count = std::min(out.size(), late_.size());
      std::copy_n(late_.begin(), count, out.begin());
      late_.erase(late_.begin(), late_.begin() + static_cast<std::ptrdiff_t>(count));
      return count;
    }
    std::size_t count = inner_->wait(std::min(enough, inside_), out);
    inside_ -= count;
    bool backwards = false;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const CompletionFault* fault = next();
      if (!fault) {
        out[kept++] = out[i];
        continue;
      }
      Completion spoilt = out[i];
      if (fault->error != 0) spoilt.result = -fault->error;
      spoilt.result = std::min(spoilt.result, fault->at_most);
      backwards |= fault->backwards;
      if (fault->late) {
        late_.push_back(spoilt);
      } else {
        out[kept++] = spoilt;
      }
    }
    if (backwards) std::reverse(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(kept));
    return kept;
  }

  void abandon() noexcept override { inner_->abandon(); }
  std::uint32_t depth() const override { return inner_->depth(); }
  std::string describe() const override { return inner_->describe(); }

 private:
  static const CompletionFault* next() {
    using Script = CompletionScript;
    const std::uint64_t number = Script::count++;
    if (!Script::armed || number < Script::ordinal) return nullptr;
    if (number > Script::ordinal && !Script::from_then_on) return nullptr;
    return &Script::fault;
  }

  const std::unique_ptr<ReadQueue> inner_;
  std::size_t inside_ = 0;  // reads in the inner queue
  std::vector<Completion> late_;
};

}  // namespace evenkeel
