// This process, recorded on a thread of its own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/profile.h"

namespace evenkeel::python {

// Begins when it is made, ends with `stop`. Needs no interpreter: samples come in time whoever has
// the GIL. In a child of fork it is not there any more: there `stop` throws Error (kClosed).
class Recording {
 public:
  Recording(std::chrono::nanoseconds interval, std::vector<std::string> files);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void mark(std::string_view text);
  // Ends the recording and returns it. Call it once. The caller adds name and ending.
  ProfileRun stop();

 private:
  class Thread;
  bool owned_here() const;
  const pid_t owner_;
  std::unique_ptr<Thread> thread_;  // empty once it has ended
};

// The run as a page: with the machine, and a verdict on the budget.
ProfileReport report_of(ProfileRun run, std::optional<std::uint64_t> budget);

}  // namespace evenkeel::python
