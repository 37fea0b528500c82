// Shared by the loaders of tokens and rows. A Handle has a `loader` and a `state_text`.
#pragma once

#include <string>

#include "c/call.h"

namespace evenkeel::c {

template <class Handle>
int seek_loader(const char* function, Handle* handle, std::uint64_t step) {
  return call(function, [&](const Call& c) { c.need(handle, "loader").loader.seek(step); });
}

template <class Handle>
int take_state(const char* function, Handle* handle, const char** state) {
  return call(function, [&](const Call& c) {
    c.need(state, "state");
    Handle& known = c.need(handle, "loader");
    known.state_text = known.loader.state().text();
    *state = known.state_text.c_str();
  });
}

template <class State, class Handle>
int load_state(const char* function, Handle* handle, const char* state) {
  return call(function, [&](const Call& c) {
    c.need(handle, "loader").loader.load(State::parse(c.text(state, "state")));
  });
}

template <class Handle>
int give_loader_stats(const char* function, const Handle* handle, evenkeel_stats* stats) {
  return call(function, [&](const Call& c) {
    c.check_result(stats, "stats");
    c.give(stats_of(c.need(handle, "loader").loader.stats()), stats);
  });
}

template <class Loader>
evenkeel_loader_info info_of(const Loader& loader, std::uint64_t epoch_samples) {
  return {0, loader.step(), loader.size(), epoch_samples,
          static_cast<std::uint64_t>(loader.buffers())};
}

// Sets the options that both have.
template <class Options, class Given>
void set_common(const Call& c, const Given& given, Options& options) {
  options.batch_size = given.batch_size;
  options.seed = given.seed;
  options.rank = given.rank;
  options.world = given.world > 0 ? given.world : 1;
  if (given.prefetch == EVENKEEL_NO_PREFETCH) {
    options.prefetch = 0;
  } else if (given.prefetch > 0) {
    options.prefetch = c.number<std::uint32_t>(given.prefetch, "options->prefetch");
  }
  options.steps = given.steps;
  options.epochs = given.epochs;
  options.buffers.keep = c.number<std::uint32_t>(given.keep, "options->keep");
}

}  // namespace evenkeel::c
