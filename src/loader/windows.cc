#include "loader/windows.h"

#include <algorithm>

#include "evenkeel/error.h"

namespace evenkeel {

namespace {

using Field = FieldWindows::Field;

std::vector<std::shared_ptr<Array::Impl>> arrays_of(const Field& field) {
  std::vector<std::shared_ptr<Array::Impl>> arrays;
  if (field.array) arrays.push_back(field.array);
  for (std::size_t i = 0; field.ragged && i < field.ragged->streams(); ++i) {
    arrays.push_back(field.ragged->array(i));
  }
  return arrays;
}

std::unique_ptr<WindowHolder> open_one(const Field& field, const Order& order,
                                       std::uint64_t taken) {
  if (field.array) {
    const std::shared_ptr<Engine> engine = field.array->engine();
    if (engine->maps_files()) return nullptr;
    return std::make_unique<WindowReader>(field.array, engine, order, taken);
  }
  if (!field.ragged) return nullptr;
  const RaggedArrays& arrays = field.ragged->arrays();
  // Offsets alone may be mapped: they are small beside the values.
  const bool mapped = std::ranges::all_of(
      arrays.values, [](const auto& values) { return values->engine()->maps_files(); });
  return mapped ? nullptr : std::make_unique<RaggedWindowReader>(arrays, order, taken);
}

bool one_stops_mapping(const std::vector<Field>& fields) {
  return std::ranges::any_of(fields, [](const Field& field) {
    return std::ranges::any_of(arrays_of(field),
                               [](const auto& array) { return array->stop_mapping(0); });
  });
}

}  // namespace

void FieldWindows::open(const std::vector<Field>& fields, const Order& order, std::uint64_t taken) {
  for (;;) {
    holders_.clear();
    try {
      for (const Field& field : fields) holders_.push_back(open_one(field, order, taken));
      return;
    } catch (const Error& error) {
      holders_.clear();
      if (error.kind() != ErrorKind::kBudget || !one_stops_mapping(fields)) throw;
    }
  }
}

bool FieldWindows::any() const {
  return std::ranges::any_of(holders_, [](const auto& holder) { return holder != nullptr; });
}

void FieldWindows::seek(std::uint64_t position, std::uint64_t end) {
  for (const auto& holder : holders_) {
    if (holder) holder->seek(position, end);
  }
}

void FieldWindows::interrupt() {
  for (const auto& holder : holders_) {
    if (holder) holder->interrupt();
  }
}

bool FieldWindows::close(std::optional<ReadAhead::Clock::time_point> deadline) {
  return std::ranges::all_of(
      holders_, [&](const auto& holder) { return !holder || holder->close(deadline); });
}

void IdleEngine::run(Feed& feed) {
  for (Extent extent; feed.next(extent);) {
  }
}

}  // namespace evenkeel
