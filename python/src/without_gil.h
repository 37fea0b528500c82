// Working without the interpreter's lock, and looking back now and then: Ctrl-C ends long work.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace evenkeel::python {

// Lets go of the GIL for a scope, as nanobind::gil_scoped_release does. But a daemon thread that
// wants it back when the interpreter is ending is unwound by force (before Python 3.14), which C++
// does not survive: here it waits for the end of the process instead.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

  // Throws what Python's signal handlers raised: KeyboardInterrupt.
  void check_signals() const;

  // When the interpreter begins to end; with the GIL.
  static void interpreter_ends();

 private:
  PyThreadState* const state_;
};

// Calls work(begin, count) for all of `total`, a piece at a time, and looks for signals in between.
// Pieces grow or shrink until one takes some 50 ms: long enough to keep a disk busy, short enough
// for a hand on the keyboard.
template <class Work>
void in_pieces(const WithoutGil& without, std::uint64_t total, std::uint64_t first_piece,
               Work work) {
  using Clock = std::chrono::steady_clock;
  using std::chrono::milliseconds;
  std::uint64_t piece = std::max<std::uint64_t>(first_piece, 1);
  for (std::uint64_t done = 0; done < total;) {
    const std::uint64_t now = std::min(piece, total - done);
    const auto begin = Clock::now();
    work(done, now);
    const auto took = Clock::now() - begin;
    done += now;
    if (done == total) return;  // Python itself looks next
    without.check_signals();
    if (took < milliseconds(25)) piece *= took < milliseconds(6) ? 4 : 2;
    if (took > milliseconds(100)) piece = std::max<std::uint64_t>(piece / 2, 1);
  }
}

}  // namespace evenkeel::python
