// Limits expensive measurements to a share of the time.
#pragma once

#include <algorithm>
#include <chrono>

namespace evenkeel {

// A look is due when the share of time saved up since the last look covers its expected cost, which
// is the cost of the last look. Some time is granted in advance, so that short programs are
// measured, too. Over any period, looks cost no more than the advance, the share of that period,
// and the last look. Not thread-safe.
class CostLimiter {
 public:
  using Clock = std::chrono::steady_clock;
  struct Terms {
    double share;                     // of the time
    Clock::duration advance;          // granted at the start, and the most that is saved up
    Clock::duration least_between{};  // two looks are never closer than this
  };
  CostLimiter(const Terms& terms, Clock::time_point now)
      : terms_(terms), saved_(terms.advance), counted_(now) {}

  bool due(Clock::time_point now) {
    const std::chrono::duration<double> since = now - counted_;
    const auto earned = std::chrono::duration_cast<Clock::duration>(since * terms_.share);
    saved_ = std::min(saved_ + earned, std::max(terms_.advance, cost_));
    counted_ = now;
    return now >= next_ && saved_ >= cost_;
  }
  void took(Clock::time_point begin, Clock::duration cost) {
    cost_ = cost;
    saved_ -= cost_;
    next_ = begin + terms_.least_between;
  }

 private:
  const Terms terms_;
  Clock::duration saved_, cost_{};
  Clock::time_point counted_, next_;
};

}  // namespace evenkeel
