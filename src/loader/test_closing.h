// Expects that a thread that waits for a batch throws when another thread closes the loader.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "evenkeel/error.h"

namespace evenkeel {

template <class AnyLoader>
void expect_closing_ends_next(AnyLoader& loader) {
  std::atomic<int> taken = 0;
  std::thread user([&] {
    EXPECT_THROW(
        for (;;) {
          loader.next();
          ++taken;
        },
        Error);
  });
  while (taken < 3) std::this_thread::yield();
  loader.close();
  user.join();
}

}  // namespace evenkeel
