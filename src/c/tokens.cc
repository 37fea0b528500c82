// Streams of tokens and their loaders.
#include "evenkeel/tokens.h"

#include "c/loader.h"

using namespace evenkeel::c;  // NOLINT(google-build-using-namespace)

struct evenkeel_tokens {
  evenkeel::Tokens tokens;
  std::string dtype, format;
};

struct evenkeel_token_loader {
  evenkeel::TokenLoader loader;
  std::string state_text = {};
};

namespace {

std::unique_ptr<evenkeel_tokens> tokens_handle(evenkeel::Tokens tokens) {
  std::string dtype = tokens.dtype().name(), format = tokens.format();
  return handle<evenkeel_tokens>(std::move(tokens), std::move(dtype), std::move(format));
}

std::optional<std::int64_t> token_of(const std::int64_t* given) {
  return given ? std::optional(*given) : std::nullopt;
}

evenkeel::LoaderOptions token_options(const Call& c, const evenkeel_token_loader_options& given) {
  evenkeel::LoaderOptions options;
  set_common(c, given, options);
  options.block_size = given.block_size;
  if (given.order) options.order = evenkeel::parse_crop_order(given.order);
  if (given.dtype && std::string_view(given.dtype) == "stored") {
    options.dtype.reset();
  } else if (given.dtype) {
    options.dtype = evenkeel::DType::parse(given.dtype);
  }
  if (given.documents) options.documents.mode = evenkeel::parse_document_mode(given.documents);
  options.documents.bos = token_of(given.bos);
  options.documents.eos = token_of(given.eos);
  if (given.index) options.documents.index = given.index;
  return options;
}

evenkeel_token_batch batch_of(const evenkeel::Batch& batch) {
  evenkeel_token_batch filled = {};
  filled.step = batch.step();
  filled.rows = batch.rows();
  filled.columns = batch.columns();
  filled.item_bytes = batch.dtype().size;
  filled.x = batch.x_bytes().data();
  filled.y = batch.y_bytes().data();
  if (!batch.document_bytes().empty()) {
    filled.position_ids = batch.position_ids().data();
    filled.document_ids = batch.document_ids().data();
    filled.loss_mask = batch.loss_mask().data();
    filled.cu_seqlens = batch.cu_seqlens().data();
    filled.cu_seqlens_count = batch.cu_seqlens().size();
    filled.max_seqlen = batch.max_seqlen();
  }
  return filled;
}

}  // namespace

int evenkeel_tokens_open(const char* path, const evenkeel_tokens_options* options,
                         evenkeel_tokens** tokens) {
  return make(__func__, tokens, [&](const Call& c) {
    const evenkeel_tokens_options given = c.given(options, "options");
    evenkeel::TokensOptions wanted{.budget = budget_of(given.budget),
                                   .engine = engine_of(given.engine),
                                   .page_cache = page_cache_of(given.page_cache),
                                   .cache = cache_of(given.cache)};
    if (given.disk_cache) wanted.disk_cache = given.disk_cache;
    if (given.dtype) wanted.dtype = evenkeel::DType::parse(given.dtype);
    return tokens_handle(evenkeel::Tokens::open(c.text(path, "path"), wanted));
  });
}

int evenkeel_tokens_slice(const evenkeel_tokens* tokens, int64_t start, int64_t stop,
                          evenkeel_tokens** slice) {
  return make(__func__, slice, [&](const Call& c) {
    const evenkeel::Tokens& whole = c.need(tokens, "tokens").tokens;
    return tokens_handle(whole.slice(start, stop == 0 ? std::nullopt : std::optional(stop)));
  });
}

int evenkeel_tokens_get_info(const evenkeel_tokens* tokens, evenkeel_tokens_info* info) {
  return call(__func__, [&](const Call& c) {
    const evenkeel_tokens& known = c.need(tokens, "tokens");
    c.check_result(info, "info");
    c.give({0, known.tokens.size(), known.tokens.dtype().size, known.dtype.c_str(),
            known.format.c_str()},
           info);
  });
}

int evenkeel_tokens_crops(const evenkeel_tokens* tokens, const uint64_t* starts, size_t count,
                          uint64_t length, void* out, size_t bytes) {
  return call(__func__, [&](const Call& c) {
    c.need(tokens, "tokens")
        .tokens.crops(c.items(starts, count, "starts"), length, c.room(out, bytes));
  });
}

int evenkeel_tokens_get_stats(const evenkeel_tokens* tokens, evenkeel_stats* stats) {
  return call(__func__, [&](const Call& c) {
    c.check_result(stats, "stats");
    c.give(stats_of(c.need(tokens, "tokens").tokens.stats()), stats);
  });
}

void evenkeel_tokens_free(evenkeel_tokens* tokens) { delete tokens; }

int evenkeel_token_loader_new(const evenkeel_tokens* const* tokens, const double* weights,
                              size_t count, const evenkeel_token_loader_options* options,
                              evenkeel_token_loader** loader) {
  return make(__func__, loader, [&](const Call& c) {
    const evenkeel::LoaderOptions wanted =
        token_options(c, c.given(&c.need(options, "options"), "options"));
    std::vector<evenkeel::WeightedTokens> sets;
    for (const evenkeel_tokens* set : c.items(tokens, count, "tokens")) {
      const double weight = weights ? weights[sets.size()] : 1;
      sets.push_back({c.need(set, "a set of tokens").tokens, weight});
    }
    // A single set is not a mixture: it has epochs, and its state does not depend on its weight.
    return sets.size() == 1
               ? handle<evenkeel_token_loader>(evenkeel::TokenLoader(sets.front().tokens, wanted))
               : handle<evenkeel_token_loader>(evenkeel::TokenLoader(std::move(sets), wanted));
  });
}

int evenkeel_token_loader_next(evenkeel_token_loader* loader, evenkeel_token_batch* batch) {
  return call(__func__, [&](const Call& c) -> int {
    c.check_result(batch, "batch");
    const evenkeel::Batch* next = c.need(loader, "loader").loader.next();
    if (!next) return EVENKEEL_END;
    c.give(batch_of(*next), batch);
    return EVENKEEL_OK;
  });
}

int evenkeel_token_loader_seek(evenkeel_token_loader* loader, uint64_t step) {
  return seek_loader(__func__, loader, step);
}

int evenkeel_token_loader_get_info(const evenkeel_token_loader* loader,
                                   evenkeel_loader_info* info) {
  return call(__func__, [&](const Call& c) {
    c.check_result(info, "info");
    const evenkeel::TokenLoader& known = c.need(loader, "loader").loader;
    c.give(info_of(known, known.epoch_samples()), info);
  });
}

int evenkeel_token_loader_state(evenkeel_token_loader* loader, const char** state) {
  return take_state(__func__, loader, state);
}

int evenkeel_token_loader_load(evenkeel_token_loader* loader, const char* state) {
  return load_state<evenkeel::LoaderState>(__func__, loader, state);
}

int evenkeel_token_loader_get_stats(const evenkeel_token_loader* loader, evenkeel_stats* stats) {
  return give_loader_stats(__func__, loader, stats);
}

int evenkeel_token_loader_close(evenkeel_token_loader* loader) {
  return call(__func__, [&](const Call& c) { c.need(loader, "loader").loader.close(); });
}

void evenkeel_token_loader_free(evenkeel_token_loader* loader) { delete loader; }
