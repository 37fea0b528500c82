// For tests: runs a piece of work with every fault at every system call, one after the other.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <thread>

#include "evenkeel/error.h"
#include "tests/fault_script.h"
#include "tests/watchdog.h"

namespace evenkeel {

inline std::size_t entries_of(const char* folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

// One run with a fault. Use `attempt` for work that may fail with an Error, and `insist` for work
// that must succeed once the fault is over.
class FaultCase {
 public:
  FaultCase(FaultScript& script, bool harmless) : script_(script), harmless_(harmless) {}

  // Returns whether the work succeeded. An Error must be complete. An Error after a harmless fault
  // fails the test, and so does any other exception.
  bool attempt(const std::function<void()>& work) {
    try {
      work();
      return true;
    } catch (const Error& error) {
      ++errors_;
      EXPECT_FALSE(harmless_) << "must go unnoticed, but: " << error.what();
      EXPECT_FALSE(std::string(error.what()).empty());
      EXPECT_FALSE(error.operation().empty()) << error.what();
      const bool of_system = error.kind() == ErrorKind::kSystem;
      EXPECT_EQ(error.code() != 0, of_system) << error.what();
      EXPECT_TRUE(of_system || error.kind() == ErrorKind::kFormat) << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "not an Error: " << error.what();
    }
    return false;
  }

  void insist(const std::function<void()>& work) {
    script_.spare();
    try {
      work();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "after the fault: " << error.what();
    }
  }
  std::uint64_t errors() const { return errors_; }

 private:
  FaultScript& script_;
  const bool harmless_;
  std::uint64_t errors_ = 0;
};

struct SweepOptions {
  bool rings = true;
  bool lasting_put_off = true;  // EAGAIN from all calls: takes a second for each opened file
  bool whole_blocks = false;    // O_DIRECT: a read of less than a block is the end of the file
  std::function<void()> before_each = {};  // runs without faults
};

class FaultSweep {
 public:
  using Work = std::function<void(FaultCase&)>;
  using Options = SweepOptions;

  explicit FaultSweep(std::string name) : name_(std::move(name)) {}

  // Runs `work` once to count its calls, then once for each fault at each call.
  void run(const Work& work, const Options& options = {}) {
    FaultScript script;
    if (!options.rings) script.forbid_rings();
    const auto once = [&](sys::Call call, std::uint64_t ordinal, const NamedFault& named,
                          bool from_then_on) {
      if (options.before_each) options.before_each();
      script.spoil(call, ordinal, named.fault, from_then_on);
      FaultCase one(script, named.harmless);
      work(one);
      script.spare();
      errors_ += one.errors() > 0;
    };
    watchdog_.enter(name_ + ": without faults");
    const NamedFault none{"none", {}, true};
    once(sys::Call::kCount, 0, none, false);  // opens what the process then keeps
    const std::size_t descriptors = entries_of("/proc/self/fd");
    const std::size_t threads = entries_of("/proc/self/task");
    once(sys::Call::kCount, 0, none, false);
    std::array<std::uint64_t, kCalls> counts;
    for (std::size_t i = 0; i < kCalls; ++i) counts[i] = script.count(static_cast<sys::Call>(i));

    for (std::size_t i = 0; i < kCalls; ++i) {
      const auto call = static_cast<sys::Call>(i);
      for (const NamedFault& named : faults_for(call)) {
        for (std::uint64_t ordinal = 0; ordinal < counts[i]; ++ordinal) {
          for (const bool from_then_on : {false, true}) {
            // Faults of all later calls begin at the first, the second and the middle call.
            // Those that the library retries for a second begin at the first only.
            if (from_then_on && ordinal > 1 && ordinal != counts[i] / 2) continue;
            const bool may_last = options.lasting_put_off && ordinal == 0;
            if (from_then_on && !may_last && is_put_off(named)) continue;
            // Endless EINTR does not occur, and reading byte by byte takes too long.
            if (from_then_on && (named.fault.error == EINTR || named.fault.at_most == 1)) continue;
            NamedFault tried = named;
            // If every call returns EAGAIN, or every read 0 bytes, the work cannot succeed.
            if (from_then_on && lasting_is_an_error(call, named)) tried.harmless = false;
            if (options.whole_blocks && call == sys::Call::kPread && named.fault.at_most == 1) {
              tried.harmless = false;
            }
            const std::string place = name_ + ": " + std::string(kCallNames[i]) + " number " +
                                      std::to_string(ordinal) + (from_then_on ? " and on" : "") +
                                      ": " + std::string(named.name);
            watchdog_.enter(place);
            SCOPED_TRACE(place);
            once(call, ordinal, tried, from_then_on);
            reached_ += script.reached();
            ++cases_;
            ASSERT_EQ(entries_of("/proc/self/fd"), descriptors) << "a descriptor is left";
            if (testing::Test::HasFailure() && ++failures_ > 20) return;
          }
        }
      }
    }
    // The kernel may need a moment to remove joined threads and those of the ring.
    for (int i = 0; i < 200 && entries_of("/proc/self/task") > threads; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_LE(entries_of("/proc/self/task"), threads) << "a thread is left";
  }

  ~FaultSweep() {
    std::cout << "faults: " << name_ << ": " << cases_ << " cases, " << reached_ << " reached, "
              << errors_ << " ended in an error, " << cases_ - errors_ << " in right data\n";
    testing::Test::RecordProperty("cases", std::to_string(cases_));
    EXPECT_GT(reached_, 0u);
  }
  FaultSweep(const FaultSweep&) = delete;
  FaultSweep& operator=(const FaultSweep&) = delete;

 private:
  static bool lasting_is_an_error(sys::Call call, const NamedFault& named) {
    using sys::Call;
    if (call == Call::kRingEnter) return true;
    const bool reads = call == Call::kPread || call == Call::kPreadFlags;
    return reads &&
           (is_put_off(named) || named.fault.at_most == 0 || named.fault.error == EOPNOTSUPP);
  }
  static bool is_put_off(const NamedFault& named) {
    return named.fault.error == EAGAIN || named.fault.error == EBUSY;
  }

  const std::string name_;
  Watchdog watchdog_;
  std::uint64_t cases_ = 0, reached_ = 0, errors_ = 0, failures_ = 0;
};

}  // namespace evenkeel
