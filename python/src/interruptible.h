// Runs work that may wait for a disk. Neither Ctrl-C nor other Python threads wait for it.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "src/without_gil.h"

namespace evenkeel::python {

// How often a waiting main thread checks for signals.
constexpr std::chrono::milliseconds kSignalInterval{50};

// Calls `release` with the GIL: now, or in the next call of `interruptible`.
void release_with_gil(std::function<void()> release);

// A reference to a Python object (a handle or an ndarray) for work that may outlive its caller: the
// last one may be released on any thread.
template <class Object>
std::shared_ptr<Object> held(const Object& object) {
  return {new Object(object), [](Object* last) { release_with_gil([last] { delete last; }); }};
}

// Calls `work` without the GIL. On the main thread, where Python runs signal handlers, a worker
// thread does the work while the caller checks for signals. If a handler raises, the exception is
// thrown at once, and the work ends by itself later. So `work` must own everything it touches: no
// references to locals, `held` for Python objects. Exceptions of the work are rethrown. If a
// handler forks, the work goes on in the parent alone, and the child gets an Error (kClosed).
void run_interruptible(std::function<void()> work);

template <class Work>
auto interruptible(Work work) {
  using Result = std::invoke_result_t<Work&>;
  if constexpr (std::is_void_v<Result>) {
    run_interruptible(std::move(work));
  } else {
    auto result = std::make_shared<std::optional<Result>>();
    run_interruptible([result, work = std::move(work)]() mutable { result->emplace(work()); });
    return std::move(**result);
  }
}

// The same for destructors: it waits only briefly, never throws, and does not check for signals.
void run_in_background(std::function<void()> work) noexcept;
// Waits until such work has ended, for up to 10 seconds: it may still hold memory of a budget.
// Returns whether there was any. Looks for signals. Call it with the GIL.
bool wait_for_background();

// Readers with threads are closed when the interpreter ends. `close` returns whether the reader's
// threads have ended by the deadline. Call these with the GIL.
using Close = std::function<bool(std::chrono::steady_clock::time_point)>;
void close_at_exit(const void* reader, Close close);
void forget_at_exit(const void* reader) noexcept;
// Called once by atexit.
void interpreter_ends();

// Shares a C++ reader between the threads that are in its calls; after `close`, new calls do not
// get it. Reader has close(deadline) and owned_here(). The GIL guards it.
template <class Reader>
class ReaderHandle {
 public:
  explicit ReaderHandle(std::shared_ptr<Reader> reader) : reader_(std::move(reader)) {
    close_at_exit(reader_.get(), [weak = std::weak_ptr<Reader>(reader_)](auto deadline) {
      const auto alive = weak.lock();
      return !alive || !alive->owned_here() || alive->close(deadline);
    });
  }
  ~ReaderHandle() { drop(); }
  ReaderHandle(const ReaderHandle&) = delete;
  ReaderHandle& operator=(const ReaderHandle&) = delete;

  const std::shared_ptr<Reader>& get() const { return reader_; }  // empty after close
  // Threads that wait in a call throw Error (kClosed).
  void close() {
    if (!reader_ || !reader_->owned_here()) return;
    forget_at_exit(reader_.get());
    interruptible([reader = std::exchange(reader_, nullptr)]() mutable {
      reader->close({});
      reader.reset();
    });
  }
  // The same without waiting for the disk, and without checking for signals.
  void drop() {
    if (!reader_) return;
    forget_at_exit(reader_.get());
    // A child of fork has no threads to end, and at the end of the interpreter a reader may still
    // wait for the disk: then it is leaked.
    const bool left_behind =
        !reader_->owned_here() ||
        (WithoutGil::interpreter_is_ending() && !reader_->close(std::chrono::steady_clock::now()));
    if (left_behind) {
      new std::shared_ptr<Reader>(std::move(reader_));
      return;
    }
    run_in_background([reader = std::exchange(reader_, nullptr)]() mutable {
      reader->close({});
      reader.reset();
    });
  }

 private:
  std::shared_ptr<Reader> reader_;
};

}  // namespace evenkeel::python
