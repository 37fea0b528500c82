// Records this process, on a separate thread.
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

// The constructor starts the recording, and `stop` ends it. It does not need the interpreter, so
// samples are on time whoever holds the GIL. A child of fork does not continue it: there `stop`
// throws Error (kClosed).
class Recording {
 public:
  Recording(std::chrono::nanoseconds interval, std::vector<std::string> files);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void mark(std::string_view text);
  // Ends the recording and returns it. Call it once. The caller sets its name and how it ended.
  ProfileRun stop();

 private:
  class Thread;
  bool owned_here() const;
  const pid_t owner_;
  std::unique_ptr<Thread> thread_;  // empty once it has ended
};

// The report of the run, with the machine and a verdict on the budget.
ProfileReport report_of(ProfileRun run, std::optional<std::uint64_t> budget);

}  // namespace evenkeel::python
