/* The C interface: arrays, token streams, training batches, model weights and the guard.
 * For C99, and for every language that can call C. docs/c.md has a complete example. The C++
 * headers beside this one say more about each subject; names and meanings are the same.
 *
 * Results. Functions return EVENKEEL_OK (0) or another code of `evenkeel_code`. After a code other
 * than EVENKEEL_OK and EVENKEEL_END, evenkeel_message() says what went wrong, where, with which
 * numbers, and what to do. Where a function fails, a handle that it would have made is NULL, and
 * other outputs are unchanged. No exception leaves the library.
 *
 * Handles. Who makes one frees it with the function `..._free`, which takes NULL as well. Handles
 * that are made from others keep what they need of them: budgets, arrays and tokens may be freed
 * while a loader still reads from them. Texts and shapes that a function gives belong to the handle
 * and stay valid until it is closed or freed, unless the function says something else.
 *
 * Structs. Set all bytes of a struct to zero and `size` to its size before it is used:
 *     evenkeel_array_options options = {.size = sizeof options, .budget = budget};
 * Zero or NULL is the default of every field. Later versions add fields at the end. A program that
 * was compiled with an older header states a smaller size: fields that it does not know have their
 * defaults. A newer header works with an older library if fields that the library does not know are
 * zero. In structs that the library fills, it sets these to zero.
 *
 * Threads. Budgets, tokens and guards may be used from several threads at once. So may arrays and
 * weights, except for `..._close`. A loader is used by one thread at a time, except for
 * `..._close`, which may come from any. `..._free` comes after all other calls. Errors are kept for
 * each thread. Do not cancel a thread (pthread_cancel) that is in a function of this library.
 *
 * fork. A child may use budgets, arrays and tokens, not loaders. Its guards have no mappings.
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

/* The version of the library that runs; EVENKEEL_VERSION is that of the header. */
EVENKEEL_API const char *evenkeel_version(void);

enum evenkeel_code {
  EVENKEEL_OK = 0,
  EVENKEEL_END = 1,       /* no error: there are no more batches */
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
  int64_t code;          /* of `evenkeel_code` */
  int64_t system_code;   /* errno, or 0 */
  const char *message;   /* all of it, with the hint */
  const char *operation; /* "open", "read" */
  const char *path;      /* "" where no file is concerned */
  const char *hint;      /* what to do, or "" */
} evenkeel_error;

/* Of the last call that failed on this thread, until another one does; "" if none did. */
EVENKEEL_API const char *evenkeel_message(void);
EVENKEEL_API int evenkeel_last_error(evenkeel_error *error);

/* ------------------------------------------------------------------ budgets */

/* A number of bytes that datasets may occupy in memory. Everything that is given the same budget
 * shares it. */
typedef struct evenkeel_budget evenkeel_budget;

typedef struct evenkeel_budget_info {
  size_t size;
  uint64_t limit;
  uint64_t in_use; /* reserved now, caches included */
  uint64_t cached; /* the part of in_use that caches hold; it gives way */
  uint64_t peak;   /* the most that was ever reserved */
  uint64_t left;   /* what may still be reserved */
} evenkeel_budget_info;

/* "64MiB", "1.5GB", "4096"; "auto" follows memory pressure; NULL: an eighth of the memory
 * available. */
EVENKEEL_API int evenkeel_budget_new(const char *text, evenkeel_budget **budget);
EVENKEEL_API int evenkeel_budget_resize(const evenkeel_budget *budget, uint64_t bytes);
EVENKEEL_API int evenkeel_budget_get_info(const evenkeel_budget *budget,
                                          evenkeel_budget_info *info);
EVENKEEL_API void evenkeel_budget_free(evenkeel_budget *budget);

/* What was read since a file was opened. */
typedef struct evenkeel_stats {
  size_t size;
  uint64_t cache_hits;   /* blocks that were in the library's cache */
  uint64_t cache_misses; /* blocks that were looked for and not there */
  uint64_t cache_bytes;  /* of the budget, that the cache holds now */
  uint64_t bytes_from_cache;
  uint64_t bytes_from_page_cache;
  uint64_t bytes_from_disk;
  uint64_t requests;  /* sent to the disk, or to a server */
  uint64_t in_flight; /* of these, not back yet */
  uint64_t wait_ns;   /* threads waited for the disk or a server, in sum */
  uint64_t bytes_from_network;
  uint64_t retries; /* requests to a server that were made again after a failure */
  uint64_t hedges;  /* second requests for bytes that were late */
  uint64_t bytes_from_disk_cache;
} evenkeel_stats;

#define EVENKEEL_NO_CACHE UINT64_MAX    /* for the field `cache` */
#define EVENKEEL_NO_PREFETCH UINT64_MAX /* for the field `prefetch` */

/* ------------------------------------------------------------------ arrays */

/* An array in one file or in several, one after the other along the first axis. */
typedef struct evenkeel_array evenkeel_array;

typedef struct evenkeel_array_options {
  size_t size;
  const evenkeel_budget *budget; /* NULL: one of its own, an eighth of the memory available */
  const char *engine;            /* NULL: "auto"; or "map" "remap" "advise" "read" "direct" */
  const char *page_cache;        /* NULL: "spare"; or "fill" */
  const char *dtype;             /* of raw files, such as "float32"; NULL: the file says it */
  const int64_t *shape;          /* of raw files; a first axis of -1 is worked out */
  uint64_t axes;                 /* numbers in `shape` */
  uint64_t offset;               /* of raw files: bytes before the first element */
  uint64_t big_endian;           /* of raw files: 1 for numbers stored that way */
  uint64_t flatten;              /* 1: one axis of elements */
  uint64_t cache;         /* the most bytes for rows asked for again; 0: what the budget leaves */
  const char *disk_cache; /* of URLs: a folder and its limit, "/nvme/ek:200GiB"; NULL: none */
  const char *name;       /* of an array in a file of several: a column, a member; or NULL */
} evenkeel_array_options;

typedef struct evenkeel_array_info {
  size_t size;
  uint64_t axes;
  const uint64_t *shape;
  uint64_t rows;       /* shape[0]; 1 for an array without axes */
  uint64_t row_bytes;  /* of one row in memory */
  uint64_t item_bytes; /* of one element */
  const char *dtype;   /* "float32" */
  const char *format;  /* "npy", "raw" */
  const char *engine;  /* how the array is read, as it was chosen at open */
  const char *why;     /* and the reason */
} evenkeel_array_info;

/* A path, or a pattern with * ? [], in sorted order. Options may be NULL. */
EVENKEEL_API int evenkeel_array_open(const char *path, const evenkeel_array_options *options,
                                     evenkeel_array **array);
EVENKEEL_API int evenkeel_array_get_info(const evenkeel_array *array, evenkeel_array_info *info);
/* Rows first .. first+count-1. `bytes` is the room at `out`: at least count * row_bytes. */
EVENKEEL_API int evenkeel_array_read(const evenkeel_array *array, uint64_t first, uint64_t count,
                                     void *out, size_t bytes);
/* Row rows[i] becomes row i of `out`. Repeats and any order are fine. */
EVENKEEL_API int evenkeel_array_gather(const evenkeel_array *array, const uint64_t *rows,
                                       size_t count, void *out, size_t bytes);
EVENKEEL_API int evenkeel_array_get_stats(const evenkeel_array *array, evenkeel_stats *stats);
/* Gives files and memory back. Later calls, except for `free`, return EVENKEEL_CLOSED. */
EVENKEEL_API int evenkeel_array_close(evenkeel_array *array);
EVENKEEL_API void evenkeel_array_free(evenkeel_array *array);

/* ------------------------------------------------------------------ tokens */

/* A stream of tokens in files of nanoGPT, llm.c, Megatron, datatrove or NPY, or in raw integers. */
typedef struct evenkeel_tokens evenkeel_tokens;

typedef struct evenkeel_tokens_options {
  size_t size;
  const evenkeel_budget *budget; /* of the tokens and their loaders; as for arrays */
  const char *engine;
  const char *page_cache;
  const char *dtype; /* of files without a header; NULL: "uint16" */
  uint64_t cache;
  const char *disk_cache;
} evenkeel_tokens_options;

typedef struct evenkeel_tokens_info {
  size_t size;
  uint64_t count;      /* tokens */
  uint64_t item_bytes; /* of a token as stored */
  const char *dtype;   /* as stored */
  const char *format;  /* "llm.c (GPT-2, 3 shards)" */
} evenkeel_tokens_info;

EVENKEEL_API int evenkeel_tokens_open(const char *path, const evenkeel_tokens_options *options,
                                      evenkeel_tokens **tokens);
/* Tokens start .. stop-1 as a stream of their own, which shares the budget. Negative numbers count
 * from the end; a stop of 0 is the end. */
EVENKEEL_API int evenkeel_tokens_slice(const evenkeel_tokens *tokens, int64_t start, int64_t stop,
                                       evenkeel_tokens **slice);
EVENKEEL_API int evenkeel_tokens_get_info(const evenkeel_tokens *tokens,
                                          evenkeel_tokens_info *info);
/* `length` tokens from each of `count` starts, as they are stored. */
EVENKEEL_API int evenkeel_tokens_crops(const evenkeel_tokens *tokens, const uint64_t *starts,
                                       size_t count, uint64_t length, void *out, size_t bytes);
EVENKEEL_API int evenkeel_tokens_get_stats(const evenkeel_tokens *tokens, evenkeel_stats *stats);
EVENKEEL_API void evenkeel_tokens_free(evenkeel_tokens *tokens);

/* ------------------------------------------------------------------ loaders of tokens */

/* Training batches. Each is a pure function of data, seed, step, rank and world. */
typedef struct evenkeel_token_loader evenkeel_token_loader;

typedef struct evenkeel_token_loader_options {
  size_t size;
  uint64_t batch_size; /* rows of a batch of this rank; must be set */
  uint64_t block_size; /* tokens of a row; must be set */
  const char *order;   /* NULL: "random"; or "shuffled" "covering" "blocks" "megatron" */
  uint64_t seed;
  uint64_t rank;         /* this process among `world` */
  uint64_t world;        /* 0: 1 */
  uint64_t prefetch;     /* batches read ahead; 0: 4 to 16; or EVENKEEL_NO_PREFETCH */
  const char *dtype;     /* of x and y: NULL: "int64"; or "int32", "stored" */
  uint64_t steps;        /* the loader ends after so many batches, ... */
  uint64_t epochs;       /* ... or after so many epochs; 0 and 0: it does not end */
  uint64_t keep;         /* a batch stays valid until so many more were taken after the next */
  const char *documents; /* NULL: "none"; or "mask" "start" "packed" */
  const int64_t *bos;    /* the token that each document begins with, or NULL */
  const int64_t *eos;    /* the token that each document ends with, or NULL */
  const char *index;     /* a folder for indexes of documents; NULL: beside each file */
} evenkeel_token_loader_options;

/* In memory of the loader; valid until the next call of `next`, `seek`, `load`, `close` or `free`,
 * or longer by `keep`. All fields are row-major; those after `y` are NULL and 0 without documents.
 */
typedef struct evenkeel_token_batch {
  size_t size;
  uint64_t step;
  uint64_t rows;
  uint64_t columns;
  uint64_t item_bytes; /* of a token in x and y */
  const void *x;
  const void *y; /* the same one token on */
  const int32_t *position_ids;
  const int32_t *document_ids;
  const uint8_t *loss_mask;
  const int32_t *cu_seqlens;
  uint64_t cu_seqlens_count;
  uint64_t max_seqlen;
} evenkeel_token_batch;

typedef struct evenkeel_loader_info {
  size_t size;
  uint64_t step;          /* of the batch that `next` gives next */
  uint64_t batches;       /* of one loop; 0 when it does not end */
  uint64_t epoch_samples; /* of all ranks together; 0 without epochs */
  uint64_t buffers;       /* batches in memory at once: 1 means no reading ahead */
} evenkeel_loader_info;

/* From one stream, or from several with weights relative to each other (NULL: equal ones). */
EVENKEEL_API int evenkeel_token_loader_new(const evenkeel_tokens *const *tokens,
                                           const double *weights, size_t count,
                                           const evenkeel_token_loader_options *options,
                                           evenkeel_token_loader **loader);
/* The next batch, or EVENKEEL_END after the last. */
EVENKEEL_API int evenkeel_token_loader_next(evenkeel_token_loader *loader,
                                            evenkeel_token_batch *batch);
EVENKEEL_API int evenkeel_token_loader_seek(evenkeel_token_loader *loader, uint64_t step);
EVENKEEL_API int evenkeel_token_loader_get_info(const evenkeel_token_loader *loader,
                                                evenkeel_loader_info *info);
/* Where the loader stands, as one line of text; valid until the next call of `state`. */
EVENKEEL_API int evenkeel_token_loader_state(evenkeel_token_loader *loader, const char **state);
/* Continues where a state was taken, also with another world, batch size or prefetch. */
EVENKEEL_API int evenkeel_token_loader_load(evenkeel_token_loader *loader, const char *state);
EVENKEEL_API int evenkeel_token_loader_get_stats(const evenkeel_token_loader *loader,
                                                 evenkeel_stats *stats);
/* Ends the reading ahead. A `next` of another thread that waits returns EVENKEEL_CLOSED. */
EVENKEEL_API int evenkeel_token_loader_close(evenkeel_token_loader *loader);
EVENKEEL_API void evenkeel_token_loader_free(evenkeel_token_loader *loader);

/* ------------------------------------------------------------------ loaders of rows */

/* Batches of rows, from one array or from several that belong together. */
typedef struct evenkeel_row_loader evenkeel_row_loader;

typedef struct evenkeel_row_loader_options {
  size_t size;
  uint64_t batch_size; /* rows of a batch of this rank; must be set */
  const char *order;   /* NULL: "shuffled"; or "blocks" "sequential" "random" */
  uint64_t seed;
  uint64_t rank;
  uint64_t world;     /* 0: 1 */
  uint64_t prefetch;  /* as for tokens */
  uint64_t steps;     /* at most one of them; */
  uint64_t epochs;    /* 0 and 0: one epoch, or no end with "random" */
  uint64_t drop_last; /* 1: an epoch's last rows are left out if they are less than a step */
  uint64_t keep;
} evenkeel_row_loader_options;

typedef struct evenkeel_row_batch {
  size_t size;
  uint64_t step;
  uint64_t rows;   /* less than batch_size in a last, short step */
  uint64_t fields; /* one for each array */
} evenkeel_row_batch;

/* All arrays have the same number of rows. */
EVENKEEL_API int evenkeel_row_loader_new(const evenkeel_array *const *arrays, size_t count,
                                         const evenkeel_row_loader_options *options,
                                         evenkeel_row_loader **loader);
EVENKEEL_API int evenkeel_row_loader_next(evenkeel_row_loader *loader, evenkeel_row_batch *batch);
/* The rows of array number `field` in the batch that `next` gave last; valid as token batches are.
 */
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
  const evenkeel_budget
      *budget; /* of headers and buffers; not of the memory tensors are read into */
  const char *engine;
} evenkeel_weights_options;

typedef struct evenkeel_tensor {
  size_t size;
  const char *name;
  const char *type;  /* in the words of the format: "BF16", "Q4_K" */
  const char *dtype; /* "bfloat16"; "" for 8-bit floats and quantised blocks */
  const uint64_t *shape;
  uint64_t axes;
  uint64_t bytes;
  const char *path; /* the file it is in */
  uint64_t offset;  /* in that file */
} evenkeel_tensor;

/* A file, a pattern, an index of shards, or the folder of a model. Options may be NULL. */
EVENKEEL_API int evenkeel_weights_open(const char *path, const evenkeel_weights_options *options,
                                       evenkeel_weights **weights);
EVENKEEL_API int evenkeel_weights_count(const evenkeel_weights *weights, size_t *count);
EVENKEEL_API int evenkeel_weights_tensor(const evenkeel_weights *weights, size_t number,
                                         evenkeel_tensor *tensor);
EVENKEEL_API int evenkeel_weights_find(const evenkeel_weights *weights, const char *name,
                                       size_t *number);
/* `bytes` must be those of the tensor. */
EVENKEEL_API int evenkeel_weights_read(const evenkeel_weights *weights, size_t number, void *out,
                                       size_t bytes);
EVENKEEL_API int evenkeel_weights_close(evenkeel_weights *weights);
EVENKEEL_API void evenkeel_weights_free(evenkeel_weights *weights);

/* ------------------------------------------------------------------ the guard */

/* Keeps file mappings of this process within a budget, while any code goes on using them. */
typedef struct evenkeel_guard evenkeel_guard;

typedef struct evenkeel_guard_options {
  size_t size;
  uint64_t budget;     /* bytes of all mappings together; at least 4 MiB */
  uint64_t keep_cache; /* 1: only resident pages are counted and released */
  const char *access;  /* NULL: "auto"; or "random" "sequential" "leave" */
} evenkeel_guard_options;

typedef struct evenkeel_guard_mapping {
  size_t size;
  void *address; /* as mmap gave it */
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
  uint64_t cached;      /* bytes counted against the budget when last looked at */
  uint64_t peak_cached; /* the highest so far */
  uint64_t bytes_released;
  uint64_t bytes_fetched;
  uint64_t file_bytes;
  const char
      *failures; /* lines: what does not work, and why; until the next report on this thread */
} evenkeel_guard_report;

EVENKEEL_API int evenkeel_guard_new(const evenkeel_guard_options *options, evenkeel_guard **guard);
EVENKEEL_API int evenkeel_guard_add(evenkeel_guard *guard, const evenkeel_guard_mapping *mapping);
/* Call before munmap. EVENKEEL_INDEX when there is no such mapping. */
EVENKEEL_API int evenkeel_guard_remove(evenkeel_guard *guard, const void *address);
EVENKEEL_API int evenkeel_guard_get_report(const evenkeel_guard *guard,
                                           evenkeel_guard_report *report);
EVENKEEL_API void evenkeel_guard_free(evenkeel_guard *guard);

#ifdef __cplusplus
}
#endif
#endif
