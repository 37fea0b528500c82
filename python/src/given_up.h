// What an interrupted user no longer waits for.
#pragma once

#include <unistd.h>

#include <chrono>
#include <future>
#include <list>
#include <utility>

#include "src/without_gil.h"

namespace evenkeel::python {

// Waits that were given up: they end by themselves, soon, and are waited for before more is read
// and before the interpreter ends. The GIL guards them. A child of fork has none.
class GivenUp {
 public:
  static GivenUp& here() {
    static GivenUp* mine = nullptr;
    if (!mine || mine->owner_ != ::getpid()) mine = new GivenUp;  // the parent's cannot be ended
    return *mine;
  }
  void add(std::future<void> waiting) { waiting_.push_back(std::move(waiting)); }
  void wait() {
    while (!waiting_.empty()) {
      std::future<void> one = std::move(waiting_.front());
      waiting_.pop_front();
      try {
        const WithoutGil without;
        while (one.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready)
          without.check_signals();
      } catch (...) {
        waiting_.push_back(std::move(one));
        throw;
      }
    }
  }

 private:
  const pid_t owner_ = ::getpid();
  std::list<std::future<void>> waiting_;
};

}  // namespace evenkeel::python
