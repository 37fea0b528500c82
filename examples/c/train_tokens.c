/* The training loop of llm.c, fed by Evenkeel: batches of int32 tokens from a file of any size,
 * read ahead within a budget of 8 MiB.
 *
 *   train_tokens [FILE [STEPS]]     token files of llm.c or nanoGPT, also "fineweb_*.bin"
 *
 * Without FILE it makes one. Instead of a model there is a checksum of what the model would see. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <evenkeel/evenkeel.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void must(int code) {
  if (code == EVENKEEL_OK) return;
  fprintf(stderr, "train_tokens: %s\n", evenkeel_message());
  exit(1);
}

/* A million tokens of 16 bits. */
static void make_tokens(int fd) {
  FILE *file = fdopen(fd, "wb");
  uint32_t number = 1;
  for (int i = 0; file && i < 1000000; ++i) {
    number = number * 1664525 + 1013904223;
    const uint16_t token = (uint16_t)(number >> 16);
    fwrite(&token, sizeof token, 1, file);
  }
  if (!file || fclose(file) != 0) {
    perror("train_tokens");
    exit(1);
  }
}

/* FNV-1a, over inputs and targets. */
static uint64_t train(uint64_t sum, const int32_t *inputs, const int32_t *targets, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    sum = (sum ^ (uint32_t)inputs[i]) * 0x100000001b3;
    sum = (sum ^ (uint32_t)targets[i]) * 0x100000001b3;
  }
  return sum;
}

/* 1 or more: with 0 steps, the loader would not end. */
static uint64_t steps_of(const char *text) {
  char *end;
  errno = 0;
  const uint64_t steps = strtoull(text, &end, 10);
  if (*text >= '1' && *text <= '9' && *end == '\0' && errno == 0) return steps;
  fprintf(stderr, "train_tokens: STEPS is a number from 1 on; got \"%s\"\n", text);
  exit(2);
}

int main(int argc, char **argv) {
  const uint64_t steps = argc > 2 ? steps_of(argv[2]) : 100;
  char made[] = "/tmp/train_tokens-XXXXXX";
  const char *path = argc > 1 ? argv[1] : made;
  if (path == made) make_tokens(mkstemp(made));

  evenkeel_budget *budget;
  must(evenkeel_budget_new("8MiB", &budget));
  evenkeel_tokens_options data = {.size = sizeof data, .budget = budget};
  evenkeel_tokens *tokens;
  must(evenkeel_tokens_open(path, &data, &tokens));

  evenkeel_token_loader_options options = {.size = sizeof options,
                                           .batch_size = 4,
                                           .block_size = 1024,
                                           .order = "covering",
                                           .seed = 1337,
                                           .dtype = "int32",
                                           .steps = steps};
  const evenkeel_tokens *sets[] = {tokens};
  evenkeel_token_loader *loader;
  must(evenkeel_token_loader_new(sets, NULL, 1, &options, &loader));

  uint64_t sum = 0xcbf29ce484222325;
  evenkeel_token_batch batch = {.size = sizeof batch};
  int code;
  while ((code = evenkeel_token_loader_next(loader, &batch)) == EVENKEEL_OK) {
    sum = train(sum, batch.x, batch.y, batch.rows * batch.columns);
  }
  if (code != EVENKEEL_END) must(code);

  evenkeel_budget_info info = {.size = sizeof info};
  must(evenkeel_budget_get_info(budget, &info));
  printf("%" PRIu64 " steps, checksum %016" PRIx64 "\n", batch.step + 1, sum);
  fprintf(stderr, "peak use %" PRIu64 " of %" PRIu64 " bytes\n", info.peak, info.limit);
  evenkeel_token_loader_free(loader);
  evenkeel_tokens_free(tokens);
  evenkeel_budget_free(budget);
  if (path == made) unlink(made);
  return 0;
}
