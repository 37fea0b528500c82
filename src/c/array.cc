// Budgets and arrays.
#include <string_view>

#include "c/call.h"

using namespace evenkeel::c;  // NOLINT(google-build-using-namespace)

evenkeel::Budget evenkeel::c::budget_of(const evenkeel_budget* given) {
  return given ? given->budget : Budget();
}

int evenkeel_budget_new(const char* text, evenkeel_budget** budget) {
  return make(__func__, budget, [&](const Call& c) {
    // Nothing here says how many processes share the node.
    if (text && std::string_view(text).ends_with("/node")) {
      throw c.wrong("\"" + std::string(text) + "\": the budget of a node is not divided here")
          .hint("give the budget of one process");
    }
    return handle<evenkeel_budget>(text ? evenkeel::Budget::parse(text) : evenkeel::Budget());
  });
}

int evenkeel_budget_resize(const evenkeel_budget* budget, uint64_t bytes) {
  return call(__func__, [&](const Call& c) { c.need(budget, "budget").budget.resize(bytes); });
}

int evenkeel_budget_get_info(const evenkeel_budget* budget, evenkeel_budget_info* info) {
  return call(__func__, [&](const Call& c) {
    const evenkeel::Budget& known = c.need(budget, "budget").budget;
    c.check_result(info, "info");
    c.give({0, known.limit(), known.in_use(), known.cached(), known.peak(), known.left()}, info);
  });
}

void evenkeel_budget_free(evenkeel_budget* budget) { delete budget; }

int evenkeel_array_open(const char* path, const evenkeel_array_options* options,
                        evenkeel_array** array) {
  return make(__func__, array, [&](const Call& c) {
    const evenkeel_array_options given = c.given(options, "options");
    const auto shape = c.items(given.shape, given.axes, "options->shape");
    evenkeel::ArrayOptions wanted{.budget = budget_of(given.budget),
                                  .engine = engine_of(given.engine),
                                  .page_cache = page_cache_of(given.page_cache),
                                  .shape = {shape.begin(), shape.end()},
                                  .offset = given.offset,
                                  .big_endian = given.big_endian != 0,
                                  .cache = cache_of(given.cache),
                                  .flatten = given.flatten != 0};
    if (given.name) wanted.name = given.name;
    if (given.disk_cache) wanted.disk_cache = given.disk_cache;
    if (given.dtype) wanted.dtype = evenkeel::DType::parse(given.dtype);
    evenkeel::Array opened = evenkeel::Array::open(c.text(path, "path"), wanted);
    std::string dtype = opened.dtype().name();
    evenkeel::EngineReport engine = opened.engine();
    return handle<evenkeel_array>(std::move(opened), std::move(dtype), std::move(engine.how),
                                  std::move(engine.why));
  });
}

int evenkeel_array_get_info(const evenkeel_array* array, evenkeel_array_info* info) {
  return call(__func__, [&](const Call& c) {
    const evenkeel_array& known = c.need(array, "array");
    const evenkeel::Array& opened = known.array;
    c.check_result(info, "info");
    c.give({0, opened.shape().size(), opened.shape().data(), opened.rows(), opened.row_bytes(),
            opened.dtype().size, known.dtype.c_str(), opened.format().c_str(), known.how.c_str(),
            known.why.c_str()},
           info);
  });
}

int evenkeel_array_read(const evenkeel_array* array, uint64_t first, uint64_t count, void* out,
                        size_t bytes) {
  return call(__func__, [&](const Call& c) {
    c.need(array, "array").array.read(first, count, c.room(out, bytes));
  });
}

int evenkeel_array_gather(const evenkeel_array* array, const uint64_t* rows, size_t count,
                          void* out, size_t bytes) {
  return call(__func__, [&](const Call& c) {
    c.need(array, "array").array.gather(c.items(rows, count, "rows"), c.room(out, bytes));
  });
}

int evenkeel_array_get_stats(const evenkeel_array* array, evenkeel_stats* stats) {
  return call(__func__, [&](const Call& c) {
    c.check_result(stats, "stats");
    c.give(stats_of(c.need(array, "array").array.stats()), stats);
  });
}

int evenkeel_array_close(evenkeel_array* array) {
  return call(__func__, [&](const Call& c) { c.need(array, "array").array.close(); });
}

void evenkeel_array_free(evenkeel_array* array) { delete array; }
