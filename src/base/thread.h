// Threads of the library's own.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "base/fault_hook.h"
#include "base/signals.h"

namespace evenkeel {

// With all signals blocked, which are for the program's threads. Throws std::system_error when none
// can be had.
template <class Work>
std::thread start_thread(Work work) {
  if (const int code = sys::injected_error(sys::Call::kThreadStart)) {
    throw std::system_error(code, std::generic_category());
  }
  const SignalsBlocked blocked;
  return std::thread(std::move(work));
}

}  // namespace evenkeel
