/* The C interface: arrays, token streams, training batches, model weights and the guard.
 * For C99, and for every language that can call C. docs/c.md has a complete example. The C++
 * headers beside this one say more about each subject; names and meanings are the same.
 *
 * Results. Functions return EVENKEEL_OK (0) or another code of `evenkeel_code`. After a code other
 * than EVENKEEL_OK and EVENKEEL_END, evenkeel_message() says what went wrong, where, with which
 * numbers, and what to do. If a function fails, the handle it would have made is NULL and its other
 * outputs are unchanged. No exception leaves the library.
 *
 * Handles. The caller frees each handle with its function `..._free`, which also accepts NULL. A
 * handle that is made from others keeps what it needs of them: budgets, arrays and tokens may be
 * freed while a loader still reads from them. Strings and shapes that a function returns belong to
 * the handle. They stay valid until it is closed or freed, unless the function says otherwise.
 *
 * Structs. Before you use a struct, set all its bytes to zero and `size` to its size:
 *     evenkeel_array_options options = {.size = sizeof options, .budget = budget};
 * Zero or NULL is the default of every field. Later versions add fields at the end. A program that
 * was compiled with an older header passes a smaller size: fields it does not know have their
 * defaults. A newer header works with an older library if the fields that the library does not know
 * are zero. The library sets such fields to zero in structs that it fills.
 *
 * Threads. Budgets, tokens and guards may be used from several threads at once. So may arrays and
 * weights, except for `..._close`. Use a loader from one thread at a time; only `..._close`
 * may be called from any thread. Call `..._free` after all other calls have returned. The last
 * error is kept per thread. Do not cancel a thread (pthread_cancel) that is in a function of this
 * library.
 *
 * fork. A child may use budgets, arrays, tokens and weights, not loaders. Its guards have no
 * mappings.
 */
#ifndef EVENKEEL_EVENKEEL_H
#define EVENKEEL_EVENKEEL_H

#include <stddef.h> /* NOLINT(modernize-deprecated-headers) */
#include <stdint.h> /* NOLINT(modernize-deprecated-headers) */

#include "evenkeel/version.h"

#define EVENKEEL_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ versions and errors */

/* The version of the running library. EVENKEEL_VERSION is the version of the header. */
EVENKEEL_API const char *evenkeel_version(void);

enum evenkeel_code {
  EVENKEEL_OK = 0,
  EVENKEEL_END = 1,       /* not an error: there are no more batches */
  EVENKEEL_INVALID = 2,   /* an argument or an option is not valid */
  EVENKEEL_FORMAT = 3,    /* a file is not what it claims to be */
  EVENKEEL_INDEX = 4,     /* a row, token, tensor or field that does not exist */
  EVENKEEL_BUDGET = 5,    /* the request cannot fit the budget */
  EVENKEEL_SYSTEM = 6,    /* a system call failed; evenkeel_error.system_code is the errno */
  EVENKEEL_CLOSED = 7,    /* used after close, or in a process that does not own it */
  EVENKEEL_NO_MEMORY = 8, /* the system has no more memory */
  EVENKEEL_INTERNAL = 9   /* anything else: please report it */
};

typedef struct evenkeel_error {
  size_t size;
  int64_t code;          /* one of `evenkeel_code` */
  int64_t system_code;   /* errno, or 0 */
  const char *message;   /* the whole message, with the hint */
  const char *operation; /* "open", "read" */
  const char *path;      /* "" if no file is concerned */
  const char *hint;      /* what to do, or "" */
} evenkeel_error;

/* The last error on this thread, until another call fails; "" if no call has failed. */
EVENKEEL_API const char *evenkeel_message(void);
EVENKEEL_API int evenkeel_last_error(evenkeel_error *error);

/* ------------------------------------------------------------------ budgets */

/* The number of bytes that datasets may occupy in memory: buffers, batches, caches, and, unless
 * `page_cache` is "fill", the page cache that reads fill. Memory that you pass in (`out`) does not
 * count. All objects opened with the same budget share it. */
typedef struct evenkeel_budget evenkeel_budget;

typedef struct evenkeel_budget_info {
  size_t size;
  uint64_t limit;
  uint64_t in_use; /* reserved now, caches included */
  uint64_t cached; /* the part of in_use that caches hold; freed when needed */
  uint64_t peak;   /* the most that was ever reserved */
  uint64_t left;   /* what may still be reserved */
} evenkeel_budget_info;

/* "64MiB", "1.5GB", "4096"; "auto" follows memory pressure; NULL: an eighth of the available
 * memory. */
EVENKEEL_API int evenkeel_budget_new(const char *text, evenkeel_budget **budget);
EVENKEEL_API int evenkeel_budget_resize(const evenkeel_budget *budget, uint64_t bytes);
EVENKEEL_API int evenkeel_budget_get_info(const evenkeel_budget *budget,
                                          evenkeel_budget_info *info);
EVENKEEL_API void evenkeel_budget_free(evenkeel_budget *budget);

/* What has been read since the data was opened. The engines "remap", "advise" and "read" count
 * neither requests nor bytes, because they cannot tell the disk from the page cache. */
typedef struct evenkeel_stats {
  size_t size;
  uint64_t cache_hits;   /* blocks that were in the library's cache */
  uint64_t cache_misses; /* blocks that were not */
  uint64_t cache_bytes;  /* bytes of the budget that the cache holds now */
  uint64_t bytes_from_cache;
  uint64_t bytes_from_page_cache;
  uint64_t bytes_from_disk;
  uint64_t requests;  /* sent to the disk or to a server */
  uint64_t in_flight; /* requests that have not completed yet */
  uint64_t wait_ns;   /* time that threads waited for the disk or a server, in total */
  uint64_t bytes_from_network;
  uint64_t retries; /* requests to a server that were repeated after a failure */
  uint64_t hedges;  /* second requests for bytes that were late */
  uint64_t bytes_from_disk_cache;
  uint64_t bytes_from_mapping; /* files that fit the budget are mapped, or all with "map" */
} evenkeel_stats;

#define EVENKEEL_NO_CACHE UINT64_MAX    /* for the field `cache` */
#define EVENKEEL_NO_PREFETCH UINT64_MAX /* for the field `prefetch` */

/* ------------------------------------------------------------------ arrays */

/* An array in one file or in several, one after the other along the first axis. */
typedef struct evenkeel_array evenkeel_array;

typedef struct evenkeel_array_options {
  size_t size;
  const evenkeel_budget *budget; /* NULL: its own, an eighth of the available memory */
  const char *engine;            /* NULL: "auto"; or "map" "remap" "advise" "read" "direct" */
  const char *page_cache;        /* NULL: "spare"; or "fill" */
  const char *dtype;             /* for raw files, such as "float32"; NULL: taken from the file */
  const int64_t *shape;          /* for raw files; a first axis of -1 is computed */
  uint64_t axes;                 /* length of `shape` */
  uint64_t offset;               /* for raw files: bytes before the first element */
  uint64_t big_endian;           /* for raw files: 1 if numbers are big-endian */
  uint64_t flatten;              /* 1: view the array as one axis of elements */
  uint64_t cache;                /* limit of the row cache in bytes; 0: what the budget leaves */
  const char *disk_cache; /* for URLs: a folder and its limit, "/nvme/ek:200GiB"; NULL: none */
  const char *name;       /* which array of a file with several: a column, a member; or NULL */
} evenkeel_array_options;

typedef struct evenkeel_array_info {
  size_t size;
  uint64_t axes;
  const uint64_t *shape;
  uint64_t rows;       /* shape[0]; 1 for an array without axes */
  uint64_t row_bytes;  /* bytes of one row in memory */
  uint64_t item_bytes; /* bytes of one element */
  const char *dtype;   /* "float32" */
  const char *format;  /* "npy", "raw" */
  const char *engine;  /* the engine that was chosen at open */
  const char *why;     /* the reason for the choice */
} evenkeel_array_info;

/* `path` may be a pattern with * ? []; matches are taken in sorted order. It may also be a URL:
 * https://, http://, s3:// or gs:// (docs/remote.md). `options` may be NULL. */
EVENKEEL_API int evenkeel_array_open(const char *path, const evenkeel_array_options *options,
                                     evenkeel_array **array);
EVENKEEL_API int evenkeel_array_get_info(const evenkeel_array *array, evenkeel_array_info *info);
/* Reads rows first .. first+count-1. `bytes` is the size of `out`: at least count * row_bytes. */
EVENKEEL_API int evenkeel_array_read(const evenkeel_array *array, uint64_t first, uint64_t count,
                                     void *out, size_t bytes);
/* Row rows[i] becomes row i of `out`. Rows may repeat and come in any order. */
EVENKEEL_API int evenkeel_array_gather(const evenkeel_array *array, const uint64_t *rows,
                                       size_t count, void *out, size_t bytes);
EVENKEEL_API int evenkeel_array_get_stats(const evenkeel_array *array, evenkeel_stats *stats);
/* Closes the files and frees all memory. Later calls, except `free`, return EVENKEEL_CLOSED. */
EVENKEEL_API int evenkeel_array_close(evenkeel_array *array);
EVENKEEL_API void evenkeel_array_free(evenkeel_array *array);

/* ------------------------------------------------------------------ tokens */

/* A stream of tokens in files of nanoGPT, llm.c, Megatron, datatrove or NPY, or in raw integers. */
typedef struct evenkeel_tokens evenkeel_tokens;

/* Fields without a comment: as in evenkeel_array_options. */
typedef struct evenkeel_tokens_options {
  size_t size;
  const evenkeel_budget *budget; /* for the tokens and their loaders; as for arrays */
  const char *engine;
  const char *page_cache;
  const char *dtype; /* for files without a header; NULL: "uint16" */
  uint64_t cache;
  const char *disk_cache;
} evenkeel_tokens_options;

typedef struct evenkeel_tokens_info {
  size_t size;
  uint64_t count;      /* tokens */
  uint64_t item_bytes; /* bytes of a stored token */
  const char *dtype;   /* as stored */
  const char *format;  /* "llm.c (GPT-2, 3 shards)" */
} evenkeel_tokens_info;

EVENKEEL_API int evenkeel_tokens_open(const char *path, const evenkeel_tokens_options *options,
                                      evenkeel_tokens **tokens);
/* Makes a stream of the tokens start .. stop-1. It shares the budget. Negative numbers count from
 * the end; a stop of 0 is the end. */
EVENKEEL_API int evenkeel_tokens_slice(const evenkeel_tokens *tokens, int64_t start, int64_t stop,
                                       evenkeel_tokens **slice);
EVENKEEL_API int evenkeel_tokens_get_info(const evenkeel_tokens *tokens,
                                          evenkeel_tokens_info *info);
/* Reads `length` tokens from each of `count` starts, as they are stored. */
EVENKEEL_API int evenkeel_tokens_crops(const evenkeel_tokens *tokens, const uint64_t *starts,
                                       size_t count, uint64_t length, void *out, size_t bytes);
EVENKEEL_API int evenkeel_tokens_get_stats(const evenkeel_tokens *tokens, evenkeel_stats *stats);
EVENKEEL_API void evenkeel_tokens_free(evenkeel_tokens *tokens);

/* ------------------------------------------------------------------ loaders of tokens */

/* Training batches. Each batch is a pure function of data, seed, step, rank and world. */
typedef struct evenkeel_token_loader evenkeel_token_loader;

typedef struct evenkeel_token_loader_options {
  size_t size;
  uint64_t batch_size; /* rows of a batch of this rank; must be set */
  uint64_t block_size; /* tokens of a row; must be set */
  const char *order;   /* NULL: "random"; or "shuffled" "covering" "blocks" "megatron" */
  uint64_t seed;
  uint64_t rank;         /* number of this process, below `world` */
  uint64_t world;        /* 0: 1 */
  uint64_t prefetch;     /* batches read ahead, fewer if the budget does not hold them; 0: 4 to 16;
                            or EVENKEEL_NO_PREFETCH */
  const char *dtype;     /* of x and y; NULL: "int64"; or "int32", "stored" */
  uint64_t steps;        /* the loader ends after this many batches, ... */
  uint64_t epochs;       /* ... or after this many epochs; 0 and 0: it does not end */
  uint64_t keep;         /* how many more batches may be taken before a batch becomes invalid */
  const char *documents; /* NULL: "none"; or "mask" "start" "packed" "whole" */
  const int64_t *bos;    /* the token that each document begins with, or NULL */
  const int64_t *eos;    /* the token that each document ends with, or NULL */
  const char *index;     /* a folder for indexes of documents; NULL: beside each file */
} evenkeel_token_loader_options;

/* The memory belongs to the loader. It is valid until the next call of `next`, `seek`, `load`,
 * `close` or `free`, or longer by `keep`. All fields are row-major. The fields after `y` are NULL
 * and 0 without documents; docs/documents.md explains them. With documents "whole", a batch is one
 * row that holds its documents one after the other, and cu_seqlens says where each begins. */
typedef struct evenkeel_token_batch {
  size_t size;
  uint64_t step;
  uint64_t rows;
  uint64_t columns;
  uint64_t item_bytes; /* of a token in x and y */
  const void *x;
  const void *y; /* x shifted by one token */
  const int32_t *position_ids;
  const int32_t *document_ids;
  const uint8_t *loss_mask;
  const int32_t *cu_seqlens;
  uint64_t cu_seqlens_count;
  uint64_t max_seqlen;
} evenkeel_token_batch;

typedef struct evenkeel_loader_info {
  size_t size;
  uint64_t step;          /* of the batch that `next` returns next */
  uint64_t batches;       /* of one loop; 0 when it does not end */
  uint64_t epoch_samples; /* of all ranks together; 0 without epochs */
  uint64_t buffers;       /* batches in memory at once: 1 means no reading ahead */
} evenkeel_loader_info;

/* Reads from one stream, or from several with relative weights (NULL: equal weights). */
EVENKEEL_API int evenkeel_token_loader_new(const evenkeel_tokens *const *tokens,
                                           const double *weights, size_t count,
                                           const evenkeel_token_loader_options *options,
                                           evenkeel_token_loader **loader);
/* Returns the next batch, or EVENKEEL_END after the last. */
EVENKEEL_API int evenkeel_token_loader_next(evenkeel_token_loader *loader,
                                            evenkeel_token_batch *batch);
EVENKEEL_API int evenkeel_token_loader_seek(evenkeel_token_loader *loader, uint64_t step);
EVENKEEL_API int evenkeel_token_loader_get_info(const evenkeel_token_loader *loader,
                                                evenkeel_loader_info *info);
/* The position of the loader as one line of text, valid until the next call of `state`. */
EVENKEEL_API int evenkeel_token_loader_state(evenkeel_token_loader *loader, const char **state);
/* Continues from a state. World, batch size and prefetch may differ. */
EVENKEEL_API int evenkeel_token_loader_load(evenkeel_token_loader *loader, const char *state);
EVENKEEL_API int evenkeel_token_loader_get_stats(const evenkeel_token_loader *loader,
                                                 evenkeel_stats *stats);
/* Stops reading ahead. A `next` that waits in another thread returns EVENKEEL_CLOSED. */
EVENKEEL_API int evenkeel_token_loader_close(evenkeel_token_loader *loader);
EVENKEEL_API void evenkeel_token_loader_free(evenkeel_token_loader *loader);

/* ------------------------------------------------------------------ loaders of rows */

/* Batches of rows, from one array or from several with the same number of rows. Functions and
 * fields without a comment: as for loaders of tokens. */
typedef struct evenkeel_row_loader evenkeel_row_loader;

typedef struct evenkeel_row_loader_options {
  size_t size;
  uint64_t batch_size; /* rows of a batch of this rank; must be set */
  const char *order;   /* NULL: "shuffled"; or "blocks" "sequential" "random" */
  uint64_t seed;
  uint64_t rank;
  uint64_t world;     /* 0: 1 */
  uint64_t prefetch;  /* as for tokens */
  uint64_t steps;     /* set at most one of these; */
  uint64_t epochs;    /* 0 and 0: one epoch, or no end with "random" */
  uint64_t drop_last; /* 1: drops the last rows of an epoch if they do not fill a step */
  uint64_t keep;
} evenkeel_row_loader_options;

typedef struct evenkeel_row_batch {
  size_t size;
  uint64_t step;
  uint64_t rows;   /* fewer than batch_size in a last, short step */
  uint64_t fields; /* one for each array */
} evenkeel_row_batch;

/* All arrays must have the same number of rows. */
EVENKEEL_API int evenkeel_row_loader_new(const evenkeel_array *const *arrays, size_t count,
                                         const evenkeel_row_loader_options *options,
                                         evenkeel_row_loader **loader);
EVENKEEL_API int evenkeel_row_loader_next(evenkeel_row_loader *loader, evenkeel_row_batch *batch);
/* The rows of array number `field` in the last batch that `next` returned. They stay valid as long
 * as token batches do. */
EVENKEEL_API int evenkeel_row_loader_field(const evenkeel_row_loader *loader, size_t field,
                                           const void **data, size_t *bytes);
EVENKEEL_API int evenkeel_row_loader_seek(evenkeel_row_loader *loader, uint64_t step);
EVENKEEL_API int evenkeel_row_loader_get_info(const evenkeel_row_loader *loader,
                                              evenkeel_loader_info *info);
EVENKEEL_API int evenkeel_row_loader_state(evenkeel_row_loader *loader, const char **state);
EVENKEEL_API int evenkeel_row_loader_load(evenkeel_row_loader *loader, const char *state);
EVENKEEL_API int evenkeel_row_loader_get_stats(const evenkeel_row_loader *loader,
                                               evenkeel_stats *stats);
EVENKEEL_API int evenkeel_row_loader_close(evenkeel_row_loader *loader);
EVENKEEL_API void evenkeel_row_loader_free(evenkeel_row_loader *loader);

/* ------------------------------------------------------------------ weights */

/* The tensors of .safetensors or .gguf files. */
typedef struct evenkeel_weights evenkeel_weights;

typedef struct evenkeel_weights_options {
  size_t size;
  /* For headers and buffers, not for the memory that tensors are read into. */
  const evenkeel_budget *budget;
  const char *engine;
} evenkeel_weights_options;

typedef struct evenkeel_tensor {
  size_t size;
  const char *name;
  const char *type;  /* as the format names it: "BF16", "Q4_K" */
  const char *dtype; /* "bfloat16"; "" for 8-bit floats and quantised blocks */
  const uint64_t *shape;
  uint64_t axes;
  uint64_t bytes;
  const char *path; /* the file it is in */
  uint64_t offset;  /* in that file */
} evenkeel_tensor;

/* `path`: a file, a pattern, an index of shards, or the folder of a model. Options may be NULL. */
EVENKEEL_API int evenkeel_weights_open(const char *path, const evenkeel_weights_options *options,
                                       evenkeel_weights **weights);
EVENKEEL_API int evenkeel_weights_count(const evenkeel_weights *weights, size_t *count);
EVENKEEL_API int evenkeel_weights_tensor(const evenkeel_weights *weights, size_t number,
                                         evenkeel_tensor *tensor);
EVENKEEL_API int evenkeel_weights_find(const evenkeel_weights *weights, const char *name,
                                       size_t *number);
/* `bytes` must be the size of the tensor. */
EVENKEEL_API int evenkeel_weights_read(const evenkeel_weights *weights, size_t number, void *out,
                                       size_t bytes);
EVENKEEL_API int evenkeel_weights_close(evenkeel_weights *weights);
EVENKEEL_API void evenkeel_weights_free(evenkeel_weights *weights);

/* ------------------------------------------------------------------ the guard */

/* Keeps file mappings of this process within a budget while any code uses them. */
typedef struct evenkeel_guard evenkeel_guard;

typedef struct evenkeel_guard_options {
  size_t size;
  uint64_t budget;     /* bytes of all mappings together; at least 4 MiB */
  uint64_t keep_cache; /* 1: only resident pages are counted and released */
  const char *access;  /* NULL: "auto"; or "random" "sequential" "leave" */
} evenkeel_guard_options;

typedef struct evenkeel_guard_mapping {
  size_t size;
  void *address; /* as mmap returned it */
  uint64_t length;
  int64_t fd; /* the mapped file */
  uint64_t file_offset;
  uint64_t removed_before_unmap; /* 1: a promise that `remove` comes before munmap */
  uint64_t closed_after_remove;  /* 1: a promise that `fd` stays open until `remove` */
} evenkeel_guard_mapping;

typedef struct evenkeel_guard_report {
  size_t size;
  uint64_t budget;
  uint64_t mappings;    /* guarded now */
  uint64_t cached;      /* bytes counted against the budget at the last count */
  uint64_t peak_cached; /* the highest `cached` so far */
  uint64_t bytes_released;
  uint64_t bytes_fetched;
  uint64_t file_bytes;
  /* Lines: what does not work, and why. Valid until the next report on this thread. */
  const char *failures;
} evenkeel_guard_report;

EVENKEEL_API int evenkeel_guard_new(const evenkeel_guard_options *options, evenkeel_guard **guard);
EVENKEEL_API int evenkeel_guard_add(evenkeel_guard *guard, const evenkeel_guard_mapping *mapping);
/* Call this before munmap. Returns EVENKEEL_INDEX if there is no such mapping. */
EVENKEEL_API int evenkeel_guard_remove(evenkeel_guard *guard, const void *address);
EVENKEEL_API int evenkeel_guard_get_report(const evenkeel_guard *guard,
                                           evenkeel_guard_report *report);
EVENKEEL_API void evenkeel_guard_free(evenkeel_guard *guard);

#ifdef __cplusplus
}
#endif
#endif
