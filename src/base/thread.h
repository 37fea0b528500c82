// Starts the library's own threads.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "base/fault_hook.h"
#include "base/signals.h"

namespace evenkeel {

// The thread has all signals blocked, because signals are for the program's threads. Throws
// std::system_error if no thread can be started.
template <class Work>
std::thread start_thread(Work work) {
  if (const int code = sys::injected_error(sys::Call::kThreadStart)) {
    throw std::system_error(code, std::generic_category());
  }
  const SignalsBlocked blocked;
  return std::thread(std::move(work));
}

}  // namespace evenkeel
