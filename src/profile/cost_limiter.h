// A share of the time, for looks that cost more than they may be taken often.
#pragma once

#include <algorithm>
#include <chrono>

namespace evenkeel {

// Grants a look when the share saved up since the last one pays for it, going by what that one
// cost. Some is granted in advance, so that short programs are seen, too. Over any time, looks cost
// no more than the advance, the share of that time, and the last of them.
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
