// Internal functions of Array for the bindings and tests.
#pragma once

#include <memory>

#include "array/impl.h"
#include "evenkeel/array.h"

namespace evenkeel {

struct Internals {
  static Array::Impl& of(const Array& array) { return array.impl(); }
  static std::shared_ptr<Array::Impl> share(const Array& array) {
    array.impl();  // throws after close
    return array.impl_;
  }
  static Chunks::Impl& of(const Chunks& chunks) { return *chunks.impl_; }
};

}  // namespace evenkeel
