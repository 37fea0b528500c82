// What Weights is made of; the Python bindings use it, too.
#pragma once

#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "evenkeel/weights.h"
#include "format/layout.h"

namespace evenkeel {

struct Weights::Impl {
  Impl(const std::string& path, const WeightsOptions& options);

  // The place of a byte of a file among the bytes of all files, which are the rows of `layout`.
  std::uint64_t row_of(std::uint32_t file, std::uint64_t offset) const {
    return layout.segments[file].first_row + offset;
  }

  const Budget budget;
  std::string format;
  std::vector<Tensor> tensors;
  std::unordered_map<std::string_view, std::size_t> by_name;
  std::map<std::string, std::string> metadata;
  Reservation bookkeeping;
  Layout layout;  // whole files, as bytes
  std::unique_ptr<Engine> engine;
};

struct WeightsInternals {
  static std::shared_ptr<Weights::Impl> share(const Weights& weights) {
    weights.impl();  // throws after close
    return weights.impl_;
  }
};

}  // namespace evenkeel
