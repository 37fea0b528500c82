#include "loader/windows.h"

#include <algorithm>

#include "evenkeel/error.h"

namespace evenkeel {

void FieldWindows::open(const Arrays& fields, const Order& order, std::uint64_t taken) {
  for (;;) {
    readers_.clear();
    readers_.resize(fields.size());
    try {
      for (std::size_t i = 0; i < fields.size(); ++i) {
        if (!fields[i]) continue;
        const std::shared_ptr<Engine> engine = fields[i]->engine();
        if (engine->maps_files()) continue;
        readers_[i] = std::make_unique<WindowReader>(fields[i], engine, order, taken);
      }
      return;
    } catch (const Error& error) {
      readers_.clear();
      if (error.kind() != ErrorKind::kBudget) throw;
      if (std::ranges::none_of(fields,
                               [](const auto& field) { return field && field->stop_mapping(0); })) {
        throw;
      }
    }
  }
}

bool FieldWindows::any() const {
  return std::ranges::any_of(readers_, [](const auto& reader) { return reader != nullptr; });
}

void FieldWindows::seek(std::uint64_t position, std::uint64_t end) {
  for (const auto& reader : readers_) {
    if (reader) reader->seek(position, end);
  }
}

void FieldWindows::interrupt() {
  for (const auto& reader : readers_) {
    if (reader) reader->interrupt();
  }
}

bool FieldWindows::close(std::optional<ReadAhead::Clock::time_point> deadline) {
  return std::ranges::all_of(
      readers_, [&](const auto& reader) { return !reader || reader->close(deadline); });
}

void IdleEngine::run(Feed& feed) {
  for (Extent extent; feed.next(extent);) {
  }
}

}  // namespace evenkeel
