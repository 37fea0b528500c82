// What a process does with the library, as text for a metrics system.
#pragma once

#include <string>

#include "evenkeel/compiler.h"

#pragma GCC visibility push(default)

namespace evenkeel {

// The counters of everything that is open in this process (arrays, weights, loaders, budgets), and
// their sums since the process began, in the OpenMetrics text format 1.0: what Prometheus reads.
// The media type is "application/openmetrics-text; version=1.0.0; charset=utf-8". docs/metrics.md
// lists the names. It never waits for a disk and keeps nothing open: what was closed is no longer
// listed, but stays in the sums. Thread-safe.
std::string metrics_text();

}  // namespace evenkeel

#pragma GCC visibility pop
