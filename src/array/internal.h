// Internal functions of Array for other folders, the bindings and tests.
#pragma once

#include <memory>
#include <utility>

#include "array/impl.h"
#include "evenkeel/array.h"

namespace evenkeel {

// The counters of an engine as ArrayStats. Caches have their own counters.
ArrayStats stats_of_engine(const EngineTotals& totals);

struct Internals {
  // Makes an array from a layout that did not come from read_layout.
  static Array make(Layout layout, const ArrayOptions& options) {
    return Array(std::make_shared<Array::Impl>(std::move(layout), options));
  }
  static Array::Impl& of(const Array& array) { return array.impl(); }
  static std::shared_ptr<Array::Impl> share(const Array& array) {
    array.impl();  // throws after close
    return array.impl_;
  }
  static Chunks::Impl& of(const Chunks& chunks) { return *chunks.impl_; }
};

}  // namespace evenkeel
