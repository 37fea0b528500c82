/* The batches of llm.c's own loader, in its order, read by Evenkeel within one budget for all shards.
 *
 *   llmc_loader PATTERN B T STEPS [RANK PROCESSES]     token files of llm.c, "fineweb_train_*.bin"
 *
 * llm.c goes through the shards in the order of their names. From each it takes as many steps as fit,
 * PROCESSES * B * T tokens and one more, and leaves the rest out; after the last shard it begins again.
 * A process takes B * T + 1 tokens of a step: its inputs, and shifted by one its targets. The same
 * batches give the same losses, so a run can move to Evenkeel and back in the middle. (For shuffled
 * batches that are read ahead, see train_tokens.c.)
 *
 * The model is a bigram, counted as it goes: the loss of each step is printed. */
#define _POSIX_C_SOURCE 200809L
#include <evenkeel/evenkeel.h>
#include <glob.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define VOCABULARY 256 /* of the model: tokens are taken modulo it */

static void *must(void *memory) {
  if (memory) return memory;
  perror("llmc_loader");
  exit(1);
}

static void check(int code) {
  if (code == EVENKEEL_OK) return;
  fprintf(stderr, "llmc_loader: %s\n", evenkeel_message());
  exit(1);
}

/* ------------------------------------------------------------------ the loader */

typedef struct {
  evenkeel_tokens **shards;
  uint64_t *shard_steps;
  size_t count;
  uint64_t B, T, rank, processes;
  size_t shard;  /* of the next step */
  uint64_t step; /* in that shard */
  uint16_t *stored;
  int *inputs, *targets;
} Loader;

static void loader_open(Loader *loader, const char *pattern, const evenkeel_budget *budget) {
  glob_t found;
  if (glob(pattern, 0, NULL, &found) != 0) {
    fprintf(stderr, "llmc_loader: no file matches %s\n", pattern);
    exit(1);
  }
  loader->count = found.gl_pathc;
  loader->shards = must(calloc(loader->count, sizeof *loader->shards));
  loader->shard_steps = must(calloc(loader->count, sizeof *loader->shard_steps));
  for (size_t i = 0; i < loader->count; ++i) {
    evenkeel_tokens_options options = {.size = sizeof options, .budget = budget};
    check(evenkeel_tokens_open(found.gl_pathv[i], &options, &loader->shards[i]));
    evenkeel_tokens_info info = {.size = sizeof info};
    check(evenkeel_tokens_get_info(loader->shards[i], &info));
    /* Divided one by one, because the product may overflow. */
    loader->shard_steps[i] =
        info.count == 0 ? 0 : (info.count - 1) / loader->processes / loader->B / loader->T;
    if (info.item_bytes != sizeof *loader->stored || loader->shard_steps[i] == 0) {
      fprintf(stderr,
              "llmc_loader: %s has no step of %" PRIu64 " x %" PRIu64 " x %" PRIu64
              " + 1 tokens of 16 bits\n",
              found.gl_pathv[i], loader->processes, loader->B, loader->T);
      exit(1);
    }
  }
  /* Now that a step fits in every shard: the sizes come from the command line. */
  const uint64_t tokens = loader->B * loader->T;
  loader->stored = must(malloc((tokens + 1) * sizeof *loader->stored));
  loader->inputs = must(malloc(tokens * sizeof *loader->inputs));
  loader->targets = must(malloc(tokens * sizeof *loader->targets));
  globfree(&found);
}

static void loader_next(Loader *loader) {
  const uint64_t tokens = loader->B * loader->T;
  if (loader->step == loader->shard_steps[loader->shard]) {
    loader->step = 0;
    loader->shard = (loader->shard + 1) % loader->count;
  }
  const uint64_t start = (loader->step++ * loader->processes + loader->rank) * tokens;
  check(evenkeel_tokens_crops(loader->shards[loader->shard], &start, 1, tokens + 1, loader->stored,
                              (tokens + 1) * sizeof *loader->stored));
  for (uint64_t i = 0; i < tokens; ++i) {
    loader->inputs[i] = loader->stored[i];
    loader->targets[i] = loader->stored[i + 1];
  }
}

static void loader_close(Loader *loader) {
  for (size_t i = 0; i < loader->count; ++i) evenkeel_tokens_free(loader->shards[i]);
  free(loader->shards);
  free(loader->shard_steps);
  free(loader->stored);
  free(loader->inputs);
  free(loader->targets);
}

/* ------------------------------------------------------------------ the model */

static uint32_t pairs[VOCABULARY][VOCABULARY], seen[VOCABULARY];

/* The mean loss of a batch, which is then learnt. */
static double train(const int *inputs, const int *targets, uint64_t count) {
  double loss = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const int x = inputs[i] % VOCABULARY, y = targets[i] % VOCABULARY;
    loss -= log((pairs[x][y] + 1.0) / (seen[x] + (double)VOCABULARY));
  }
  for (uint64_t i = 0; i < count; ++i) {
    const int x = inputs[i] % VOCABULARY, y = targets[i] % VOCABULARY;
    ++pairs[x][y];
    ++seen[x];
  }
  return loss / (double)count;
}

int main(int argc, char **argv) {
  if (argc != 5 && argc != 7) {
    fprintf(stderr, "usage: llmc_loader PATTERN B T STEPS [RANK PROCESSES]\n");
    return 2;
  }
  Loader loader = {.B = strtoull(argv[2], NULL, 10),
                   .T = strtoull(argv[3], NULL, 10),
                   .rank = argc > 5 ? strtoull(argv[5], NULL, 10) : 0,
                   .processes = argc > 5 ? strtoull(argv[6], NULL, 10) : 1};
  if (loader.B == 0 || loader.T == 0 || loader.rank >= loader.processes) {
    fprintf(stderr, "llmc_loader: B and T are at least 1, and RANK is less than PROCESSES\n");
    return 2;
  }
  evenkeel_budget *budget;
  check(evenkeel_budget_new("8MiB", &budget));
  loader_open(&loader, argv[1], budget);
  const uint64_t steps = strtoull(argv[4], NULL, 10);
  for (uint64_t step = 0; step < steps; ++step) {
    loader_next(&loader);
    printf("step %" PRIu64 " loss %.17g\n", step,
           train(loader.inputs, loader.targets, loader.B * loader.T));
  }
  loader_close(&loader);
  evenkeel_budget_free(budget);
  return 0;
}
