// For tests: runs that are computed from functions of time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "evenkeel/profile.h"

namespace evenkeel {

// Makes `count` samples at equal distances from 0 to `seconds`. `fill` is called with each sample,
// whose time is set.
inline ProfileRun make_run(double seconds, std::size_t count,
                           const std::function<void(ProfileSample&)>& fill) {
  ProfileRun run;
  run.name = "run";
  run.seconds = seconds;
  for (std::size_t i = 0; i < count; ++i) {
    ProfileSample sample;
    sample.seconds =
        count < 2 ? 0 : seconds * static_cast<double>(i) / static_cast<double>(count - 1);
    fill(sample);
    run.samples.push_back(sample);
  }
  return run;
}

// Text that breaks code without escaping: markup, quotes, control characters, bytes that are not
// UTF-8.
inline const std::string kHostile =
    "</script></text><script>alert(1)</script>{{css}}{{js}} \"'&\\ \x01\x7f\n\t \xff\xc3 \u2028 "
    "]]> <!--";

}  // namespace evenkeel
