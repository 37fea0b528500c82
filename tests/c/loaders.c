/* Token streams and the loaders, as a C program sees them. */
#define _POSIX_C_SOURCE 200809L
#include <unistd.h>

#include "tests/c/check.h"

static evenkeel_token_loader *token_loader(const evenkeel_tokens *tokens,
                                           const evenkeel_token_loader_options *options) {
  evenkeel_token_loader *loader = NULL;
  MUST(evenkeel_token_loader_new(&tokens, NULL, 1, options, &loader));
  return loader;
}

static void test_token_batches(const evenkeel_tokens *tokens) {
  evenkeel_token_loader_options options = {.size = sizeof options,
                                           .batch_size = BATCH,
                                           .block_size = BLOCK,
                                           .order = "covering",
                                           .seed = 7,
                                           .dtype = "int32",
                                           .steps = 5};
  evenkeel_token_loader *loader = token_loader(tokens, &options);
  evenkeel_token_batch batch = {.size = sizeof batch};
  static int32_t seen[5][BATCH * BLOCK];
  char state[1000] = "";
  int steps = 0, code;
  while ((code = evenkeel_token_loader_next(loader, &batch)) == EVENKEEL_OK && steps < 5) {
    CHECK(batch.step == (uint64_t)steps && batch.rows == BATCH && batch.columns == BLOCK);
    CHECK(batch.item_bytes == 4 && batch.position_ids == NULL && batch.cu_seqlens_count == 0);
    const int32_t *x = batch.x, *y = batch.y;
    for (int i = 0; i < BATCH * BLOCK; ++i) {
      CHECK((x[i] + 7) % 50000 == y[i]); /* the next token of the stream */
    }
    memcpy(seen[steps++], x, sizeof seen[0]);
    if (steps == 2) {
      const char *text = NULL;
      MUST(evenkeel_token_loader_state(loader, &text));
      snprintf(state, sizeof state, "%s", text);
    }
  }
  CHECK(code == EVENKEEL_END && steps == 5);

  MUST(evenkeel_token_loader_seek(loader, 3));
  evenkeel_loader_info info = {.size = sizeof info};
  MUST(evenkeel_token_loader_get_info(loader, &info));
  CHECK(info.step == 3 && info.batches == 5 && info.buffers >= 1);
  CHECK(info.epoch_samples >= TOKENS / BLOCK - 2);
  MUST(evenkeel_token_loader_next(loader, &batch));
  CHECK(batch.step == 3 && memcmp(batch.x, seen[3], sizeof seen[3]) == 0);

  options.prefetch = EVENKEEL_NO_PREFETCH;
  evenkeel_token_loader *resumed = token_loader(tokens, &options);
  MUST(evenkeel_token_loader_load(resumed, state));
  MUST(evenkeel_token_loader_next(resumed, &batch));
  CHECK(batch.step == 2 && memcmp(batch.x, seen[2], sizeof seen[2]) == 0);
  FAILS(evenkeel_token_loader_load(resumed, "nonsense"), EVENKEEL_INVALID, "state");
  FAILS(evenkeel_token_loader_load(resumed, NULL), EVENKEEL_INVALID, "state is NULL");
  FAILS(evenkeel_token_loader_next(resumed, NULL), EVENKEEL_INVALID, "batch is NULL");
  evenkeel_stats stats = {.size = sizeof stats};
  MUST(evenkeel_token_loader_get_stats(resumed, &stats));
  evenkeel_token_loader_free(resumed);

  MUST(evenkeel_token_loader_close(loader));
  FAILS(evenkeel_token_loader_next(loader, &batch), EVENKEEL_CLOSED, "close");
  evenkeel_token_loader_free(loader);

  /* Two streams, and documents. */
  evenkeel_tokens *half = NULL;
  MUST(evenkeel_tokens_slice(tokens, TOKENS / 2, 0, &half));
  const evenkeel_tokens *sets[] = {tokens, half};
  const double weights[] = {3, 1};
  const int64_t eos = 7;
  options.documents = "mask";
  options.eos = &eos;
  options.dtype = "stored";
  MUST(evenkeel_token_loader_new(sets, weights, 2, &options, &loader));
  evenkeel_tokens_free(half); /* the loader keeps what it needs */
  MUST(evenkeel_token_loader_next(loader, &batch));
  CHECK(batch.item_bytes == 2 && batch.position_ids && batch.document_ids && batch.loss_mask);
  CHECK(batch.cu_seqlens[0] == 0 && batch.max_seqlen <= BLOCK);
  CHECK(batch.cu_seqlens[batch.cu_seqlens_count - 1] == BATCH * BLOCK);
  evenkeel_token_loader_free(loader);

  options.documents = "whole";
  MUST(evenkeel_token_loader_new(sets, NULL, 1, &options, &loader));
  MUST(evenkeel_token_loader_next(loader, &batch));
  CHECK(batch.rows == 1 && batch.cu_seqlens_count > 1);
  CHECK((uint64_t)batch.cu_seqlens[batch.cu_seqlens_count - 1] == batch.columns);
  evenkeel_token_loader_free(loader);
  CHECK(remove("train.bin.eos7.documents") == 0); /* the index that was built */

  sets[1] = NULL;
  FAILS(evenkeel_token_loader_new(sets, NULL, 2, &options, &loader), EVENKEEL_INVALID, "NULL");
  FAILS(evenkeel_token_loader_new(sets, NULL, 0, &options, &loader), EVENKEEL_INVALID, "");
  FAILS(evenkeel_token_loader_new(sets, NULL, 1, NULL, &loader), EVENKEEL_INVALID,
        "options is NULL");
  options.batch_size = 0;
  FAILS(evenkeel_token_loader_new(sets, NULL, 1, &options, &loader), EVENKEEL_INVALID,
        "batch_size");
  options.batch_size = 1;
  options.keep = (uint64_t)1 << 40;
  FAILS(evenkeel_token_loader_new(sets, NULL, 1, &options, &loader), EVENKEEL_INVALID, "keep");
  CHECK(loader == NULL);
}

/* Documents of 1 to 10 tokens, each in one piece. */
static void test_whole_documents(void) {
  uint16_t text[55];
  int tokens = 0;
  for (int length = 1; length <= 10; ++length) {
    for (int i = 1; i <= length; ++i) text[tokens++] = i == length ? 7 : 100;
  }
  write_file("documents.bin", text, sizeof text);
  evenkeel_tokens *documents = NULL;
  MUST(evenkeel_tokens_open("documents.bin", NULL, &documents));
  const int64_t eos = 7;
  const evenkeel_token_loader_options options = {.size = sizeof options,
                                                 .batch_size = BATCH,
                                                 .block_size = BLOCK,
                                                 .order = "shuffled",
                                                 .documents = "whole",
                                                 .eos = &eos};
  evenkeel_token_loader *loader = token_loader(documents, &options);
  evenkeel_token_batch batch = {.size = sizeof batch};
  MUST(evenkeel_token_loader_next(loader, &batch));
  CHECK(batch.rows == 1 && batch.cu_seqlens_count == BATCH + 1);
  CHECK((uint64_t)batch.cu_seqlens[BATCH] == batch.columns);
  evenkeel_token_loader_free(loader);
  evenkeel_tokens_free(documents);
  unlink("documents.bin");
  unlink("documents.bin.eos7.documents"); /* the index of documents */
}

void test_tokens(void) {
  evenkeel_budget *budget = NULL;
  MUST(evenkeel_budget_new("8MiB", &budget));
  evenkeel_tokens_options options = {.size = sizeof options, .budget = budget};
  evenkeel_tokens *tokens = NULL;
  MUST(evenkeel_tokens_open("train.bin", &options, &tokens));
  evenkeel_tokens_info info = {.size = sizeof info};
  MUST(evenkeel_tokens_get_info(tokens, &info));
  CHECK(info.count == TOKENS && info.item_bytes == 2 && strcmp(info.dtype, "uint16") == 0);
  const uint64_t starts[] = {11, 19000};
  uint16_t crops[2][50];
  MUST(evenkeel_tokens_crops(tokens, starts, 2, 50, crops, sizeof crops));
  for (int i = 0; i < 2; ++i) CHECK(memcmp(crops[i], stream + starts[i], sizeof crops[i]) == 0);
  const uint64_t beyond = TOKENS - 49;
  FAILS(evenkeel_tokens_crops(tokens, &beyond, 1, 50, crops, sizeof crops), EVENKEEL_INDEX, "");
  test_token_batches(tokens);
  test_whole_documents();

  evenkeel_token_loader_options large = {
      .size = sizeof large, .batch_size = 1000, .block_size = 10000};
  const evenkeel_tokens *set = tokens;
  evenkeel_token_loader *loader = NULL;
  FAILS(evenkeel_token_loader_new(&set, NULL, 1, &large, &loader), EVENKEEL_BUDGET, "budget");
  evenkeel_tokens_free(tokens);
  evenkeel_budget_free(budget);
}

void test_rows(void) {
  evenkeel_array_options options = {.size = sizeof options, .dtype = "int32"};
  evenkeel_array *x = open_numbers(NULL), *y = NULL;
  MUST(evenkeel_array_open("y.i32", &options, &y));
  const evenkeel_array *arrays[] = {x, y};
  evenkeel_row_loader_options wanted = {
      .size = sizeof wanted, .batch_size = 64, .seed = 3, .epochs = 1};
  evenkeel_row_loader *loader = NULL;
  MUST(evenkeel_row_loader_new(arrays, 2, &wanted, &loader));
  evenkeel_array_free(x); /* the loader keeps what it needs */
  evenkeel_array_free(y);

  evenkeel_row_batch batch = {.size = sizeof batch};
  const void *data = NULL, *numbers_of_rows = NULL;
  size_t bytes = 0;
  FAILS(evenkeel_row_loader_field(loader, 0, &data, &bytes), EVENKEEL_INVALID, "no batch");
  char seen[ROWS] = {0};
  int code, rows = 0;
  while ((code = evenkeel_row_loader_next(loader, &batch)) == EVENKEEL_OK) {
    CHECK(batch.fields == 2);
    MUST(evenkeel_row_loader_field(loader, 1, &data, &bytes));
    CHECK(bytes == batch.rows * sizeof(int32_t));
    MUST(evenkeel_row_loader_field(loader, 0, &numbers_of_rows, &bytes));
    CHECK(bytes == batch.rows * sizeof numbers[0]);
    for (uint64_t i = 0; i < batch.rows; ++i, ++rows) {
      const int32_t row = ((const int32_t *)data)[i];
      CHECK(row >= 0 && row < ROWS && !seen[row]++);
      CHECK(memcmp((const float *)numbers_of_rows + i * COLUMNS, numbers[row], 16) == 0);
    }
  }
  CHECK(code == EVENKEEL_END && rows == ROWS);

  MUST(evenkeel_row_loader_seek(loader, 2));
  evenkeel_loader_info info = {.size = sizeof info};
  MUST(evenkeel_row_loader_get_info(loader, &info));
  CHECK(info.step == 2 && info.batches == (ROWS + 63) / 64 && info.epoch_samples == ROWS);
  const char *state = NULL;
  MUST(evenkeel_row_loader_state(loader, &state));
  MUST(evenkeel_row_loader_next(loader, &batch));
  MUST(evenkeel_row_loader_load(loader, state));
  MUST(evenkeel_row_loader_next(loader, &batch));
  CHECK(batch.step == 2);
  FAILS(evenkeel_row_loader_field(loader, 2, &data, &bytes), EVENKEEL_INDEX, "field 2 of 2");
  FAILS(evenkeel_row_loader_field(loader, 0, NULL, &bytes), EVENKEEL_INVALID, "data is NULL");
  evenkeel_stats stats = {.size = sizeof stats};
  MUST(evenkeel_row_loader_get_stats(loader, &stats));
  MUST(evenkeel_row_loader_close(loader));
  FAILS(evenkeel_row_loader_next(loader, &batch), EVENKEEL_CLOSED, "close");
  FAILS(evenkeel_row_loader_field(loader, 0, &data, &bytes), EVENKEEL_INVALID, "no batch");
  evenkeel_row_loader_free(loader);
  FAILS(evenkeel_row_loader_new(NULL, 1, &wanted, &loader), EVENKEEL_INVALID, "arrays is NULL");
}
