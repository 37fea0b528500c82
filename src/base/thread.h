// The library's own threads.
#pragma once

#include <cerrno>
#include <chrono>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "base/fault_hook.h"
#include "base/signals.h"
#include "evenkeel/error.h"

namespace evenkeel {

// Starts a thread with all signals blocked, because signals are for the program's threads. Throws
// std::system_error if no thread can be started, also if there is no memory for it.
template <class Work>
std::thread start_thread(Work work) {
  try {
    if (const int code = sys::injected_error(sys::Call::kThreadStart)) {
      throw std::system_error(code, std::generic_category());
    }
    const SignalsBlocked blocked;
    return std::thread(std::move(work));
  } catch (const std::bad_alloc&) {
    throw std::system_error(ENOMEM, std::generic_category());
  }
}

// The same for an operation that cannot do without the thread: throws Error (kSystem).
template <class Work>
std::thread start_needed_thread(const char* operation, Work work) {
  try {
    return start_thread(std::move(work));
  } catch (const std::system_error& error) {
    throw Error::system(operation, error.code().value(), "a thread cannot be started");
  }
}

// Asks the scheduler for short time slices, which makes it run the calling thread sooner after a
// wake-up when all cores are busy (Linux 6.12; older kernels refuse or ignore it).
void ask_for_short_slices();

// The processor time of the calling thread. Unlike a clock, it does not advance while the thread
// waits for a processor.
std::chrono::duration<double> thread_cpu_time();

}  // namespace evenkeel
