// Loaders of rows.
#include <atomic>

#include "c/loader.h"
#include "evenkeel/loader.h"

using namespace evenkeel::c;  // NOLINT(google-build-using-namespace)

struct evenkeel_row_loader {
  explicit evenkeel_row_loader(evenkeel::Loader made) : loader(std::move(made)) {}
  evenkeel::Loader loader;
  std::string state_text;
  // The last batch that `next` returned, while it is valid. Atomic because `close` may be called by
  // another thread.
  std::atomic<const evenkeel::RowBatch*> batch = nullptr;
};

int evenkeel_row_loader_new(const evenkeel_array* const* arrays, size_t count,
                            const evenkeel_row_loader_options* options,
                            evenkeel_row_loader** loader) {
  return make(__func__, loader, [&](const Call& c) {
    const evenkeel_row_loader_options given = c.given(&c.need(options, "options"), "options");
    evenkeel::RowLoaderOptions wanted;
    set_common(c, given, wanted);
    if (given.order) wanted.order = evenkeel::parse_order(given.order);
    wanted.drop_last = given.drop_last != 0;
    std::vector<evenkeel::LoaderField> fields;
    for (const evenkeel_array* array : c.items(arrays, count, "arrays")) {
      fields.emplace_back(c.need(array, "an array").array);
    }
    return std::make_unique<evenkeel_row_loader>(evenkeel::Loader(std::move(fields), wanted));
  });
}

int evenkeel_row_loader_next(evenkeel_row_loader* loader, evenkeel_row_batch* batch) {
  return call(__func__, [&](const Call& c) -> int {
    c.check_result(batch, "batch");
    evenkeel_row_loader& known = c.need(loader, "loader");
    known.batch = nullptr;
    const evenkeel::RowBatch* next = known.loader.next();
    if (!next) return EVENKEEL_END;
    known.batch = next;
    c.give({0, next->step(), next->rows(), next->fields()}, batch);
    return EVENKEEL_OK;
  });
}

int evenkeel_row_loader_field(const evenkeel_row_loader* loader, size_t field, const void** data,
                              size_t* bytes) {
  return call(__func__, [&](const Call& c) {
    const evenkeel::RowBatch* batch = c.need(loader, "loader").batch;
    c.need(data, "data");
    c.need(bytes, "bytes");
    if (!batch) throw c.wrong("there is no batch").hint("call evenkeel_row_loader_next first");
    if (field >= batch->fields()) {
      throw evenkeel::Error(
          evenkeel::ErrorKind::kIndex, "evenkeel_row_loader_field",
          "field " + std::to_string(field) + " of " + std::to_string(batch->fields()));
    }
    *data = batch->bytes(field).data();
    *bytes = batch->bytes(field).size();
  });
}

int evenkeel_row_loader_seek(evenkeel_row_loader* loader, uint64_t step) {
  if (loader) loader->batch = nullptr;
  return seek_loader(__func__, loader, step);
}

int evenkeel_row_loader_get_info(const evenkeel_row_loader* loader, evenkeel_loader_info* info) {
  return call(__func__, [&](const Call& c) {
    c.check_result(info, "info");
    const evenkeel::Loader& known = c.need(loader, "loader").loader;
    c.give(info_of(known, known.epoch_rows()), info);
  });
}

int evenkeel_row_loader_state(evenkeel_row_loader* loader, const char** state) {
  return take_state(__func__, loader, state);
}

int evenkeel_row_loader_load(evenkeel_row_loader* loader, const char* state) {
  if (loader) loader->batch = nullptr;
  return load_state<evenkeel::RowLoaderState>(__func__, loader, state);
}

int evenkeel_row_loader_get_stats(const evenkeel_row_loader* loader, evenkeel_stats* stats) {
  return give_loader_stats(__func__, loader, stats);
}

int evenkeel_row_loader_close(evenkeel_row_loader* loader) {
  if (loader) loader->batch = nullptr;
  return call(__func__, [&](const Call& c) { c.need(loader, "loader").loader.close(); });
}

void evenkeel_row_loader_free(evenkeel_row_loader* loader) { delete loader; }
