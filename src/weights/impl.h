// The implementation of Weights. The Python bindings use it, too.
#pragma once

#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "array/row_feed.h"
#include "base/per_process.h"
#include "engine/engine.h"
#include "evenkeel/weights.h"
#include "format/layout.h"
#include "metrics/live.h"

namespace evenkeel {

struct Weights::Impl final : LiveObject {
  Impl(const std::string& path, const WeightsOptions& options);
  ~Impl() { live_.end(); }

  ArrayStats stats() const;

  // The row of `layout` that is this byte of a file: a row is one byte.
  std::uint64_t row_of(std::uint32_t file, std::uint64_t offset) const {
    return layout.segments[file].first_row + offset;
  }

  // A run that reads the tensor to `out`. Throws Error (kInvalid) if the tensor does not lie in
  // these files, because it belongs to another Weights.
  JobRun run_of(const Tensor& tensor, std::byte* out) const;

 private:
  std::optional<LiveFigures> live_figures() const override;
  LiveLabels live_labels() const override;
  LiveEntry live_;

 public:
  const Budget budget;
  const EngineKind asked;
  std::string format;
  std::vector<Tensor> tensors;
  std::unordered_map<std::string_view, std::size_t> by_name;
  std::map<std::string, std::string> metadata;
  std::vector<Reservation> bookkeeping;  // one for each file
  Layout layout;                         // whole files, as bytes
  std::unique_ptr<Engine> engine;

 private:
  ArrayStats engine_stats() const;                      // since the weights were opened
  mutable PerProcess<ArrayStats> before_fork_{[this] {  // what the parent of this process has read
    return std::make_unique<ArrayStats>(engine_stats());
  }};
};

// Like Weights::array, but with another dtype of the same size.
Array make_array(const Weights::Impl& weights, const Tensor& tensor, DType dtype);

struct WeightsInternals {
  static std::shared_ptr<Weights::Impl> share(const Weights& weights) {
    weights.impl();  // throws after close
    return weights.impl_;
  }
};

}  // namespace evenkeel
