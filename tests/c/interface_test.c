/* The C interface as a C program sees it: bytes are compared with those of the files, and every
 * kind of error is met. The program makes its own files in a temporary folder. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/c/check.h"

int failures = 0;
float numbers[ROWS][COLUMNS];
int32_t labels[ROWS];
uint16_t stream[TOKENS];

void write_file(const char *name, const void *data, size_t bytes) {
  FILE *file = fopen(name, "wb");
  if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
    perror(name);
    exit(1);
  }
}

static void write_safetensors(void) {
  const char header[] =
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[16,19]}}";
  unsigned char all[8 + sizeof header - 1 + 19] = {sizeof header - 1};
  memcpy(all + 8, header, sizeof header - 1);
  memcpy(all + 8 + sizeof header - 1, numbers, 16);
  memcpy(all + 8 + sizeof header - 1 + 16, "xyz", 3);
  write_file("model.safetensors", all, sizeof all);
}

static void make_files(void) {
  for (int row = 0; row < ROWS; ++row) {
    labels[row] = row;
    for (int column = 0; column < COLUMNS; ++column) {
      numbers[row][column] = (float)(row * 10 + column);
    }
  }
  for (int token = 0; token < TOKENS; ++token) stream[token] = (uint16_t)(token * 7 % 50000);
  write_file("x.f32", numbers, sizeof numbers);
  write_file("y.i32", labels, sizeof labels);
  write_file("train.bin", stream, sizeof stream);
  write_safetensors();
}

evenkeel_array *open_numbers(const evenkeel_budget *budget) {
  const int64_t shape[] = {-1, COLUMNS};
  evenkeel_array_options options = {
      .size = sizeof options, .budget = budget, .dtype = "float32", .shape = shape, .axes = 2};
  evenkeel_array *array = NULL;
  MUST(evenkeel_array_open("x.f32", &options, &array));
  return array;
}

static void test_errors(void) {
  evenkeel_array *array = (evenkeel_array *)&failures; /* anything but NULL */
  FAILS(evenkeel_array_open("missing.npy", NULL, &array), EVENKEEL_SYSTEM, "missing.npy");
  CHECK(array == NULL);
  evenkeel_error error = {.size = sizeof error};
  CHECK(evenkeel_last_error(&error) == EVENKEEL_OK);
  CHECK(error.code == EVENKEEL_SYSTEM && error.system_code == 2 /* ENOENT */);
  CHECK(strcmp(error.path, "missing.npy") == 0 && error.operation[0] != '\0');
  CHECK(strcmp(error.message, evenkeel_message()) == 0);

  FAILS(evenkeel_array_open("train.bin", NULL, &array), EVENKEEL_FORMAT, "train.bin");
  FAILS(evenkeel_array_open(NULL, NULL, &array), EVENKEEL_INVALID, "path is NULL");
  FAILS(evenkeel_array_open("x.f32", NULL, NULL), EVENKEEL_INVALID, "evenkeel_array_open");
  FAILS(evenkeel_last_error(NULL), EVENKEEL_INVALID, "error is NULL");

  evenkeel_budget *budget = NULL;
  FAILS(evenkeel_budget_new("a lot", &budget), EVENKEEL_INVALID, "a lot");
  FAILS(evenkeel_budget_new("1GiB/node", &budget), EVENKEEL_INVALID, "1GiB/node");
  FAILS(evenkeel_budget_resize(NULL, 1), EVENKEEL_INVALID, "budget is NULL");
  evenkeel_array_options options = {.size = sizeof options, .dtype = "float31"};
  FAILS(evenkeel_array_open("x.f32", &options, &array), EVENKEEL_INVALID, "float31");
  options.dtype = "float32";
  options.engine = "steam";
  FAILS(evenkeel_array_open("x.f32", &options, &array), EVENKEEL_INVALID, "steam");
  options.engine = NULL;
  options.axes = 2;
  FAILS(evenkeel_array_open("x.f32", &options, &array), EVENKEEL_INVALID, "shape is NULL");

  options.axes = 0;
  options.name = "column";
  FAILS(evenkeel_array_open("x.f32", &options, &array), EVENKEEL_FORMAT, "x.f32");

  evenkeel_budget_free(NULL);
  evenkeel_array_free(NULL);
  evenkeel_tokens_free(NULL);
  evenkeel_token_loader_free(NULL);
  evenkeel_row_loader_free(NULL);
  evenkeel_weights_free(NULL);
  evenkeel_guard_free(NULL);
}

/* Options of a later version, and structs of an earlier one. */
struct newer_options {
  evenkeel_tokens_options known;
  uint64_t unknown;
};
struct older_info { /* evenkeel_tokens_info, before it had more fields */
  size_t size;
  uint64_t count;
};

static void test_struct_sizes(void) {
  evenkeel_tokens *tokens = NULL;
  evenkeel_tokens_options options;
  /* A program of an earlier version: what is behind `budget` is not its own. */
  memset(&options, 0xAB, sizeof options);
  options.size = offsetof(evenkeel_tokens_options, engine);
  options.budget = NULL;
  MUST(evenkeel_tokens_open("train.bin", &options, &tokens));

  struct {
    struct older_info info;
    uint64_t behind;
  } older = {{sizeof older.info, 0}, 42};
  MUST(evenkeel_tokens_get_info(tokens, (evenkeel_tokens_info *)&older.info));
  CHECK(older.info.count == TOKENS && older.info.size == sizeof older.info && older.behind == 42);
  struct {
    evenkeel_tokens_info info;
    uint64_t unknown;
  } newer_info = {{0}, 42};
  newer_info.info.size = sizeof newer_info;
  MUST(evenkeel_tokens_get_info(tokens, &newer_info.info));
  CHECK(newer_info.info.item_bytes == 2 && newer_info.unknown == 0);
  evenkeel_tokens_free(tokens);

  struct newer_options newer = {{0}, 0};
  newer.known.size = sizeof newer;
  MUST(evenkeel_tokens_open("train.bin", &newer.known, &tokens));
  evenkeel_tokens_free(tokens);
  newer.unknown = 1;
  FAILS(evenkeel_tokens_open("train.bin", &newer.known, &tokens), EVENKEEL_INVALID,
        "does not know");

  const size_t wrong[] = {0, 4, sizeof options - 1, (size_t)1 << 40};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    memset(&options, 0, sizeof options);
    options.size = wrong[i];
    FAILS(evenkeel_tokens_open("train.bin", &options, &tokens), EVENKEEL_INVALID, "options->size");
    evenkeel_stats stats = {.size = wrong[i]};
    FAILS(evenkeel_tokens_get_stats(NULL, &stats), EVENKEEL_INVALID, "stats->size");
  }
}

static void *read_rows(void *array) {
  float out[10][COLUMNS];
  for (uint64_t first = 0; first + 10 <= ROWS; first += 10) {
    CHECK(evenkeel_array_read(array, first, 10, out, sizeof out) == EVENKEEL_OK);
    CHECK(memcmp(out, numbers[first], sizeof out) == 0);
  }
  /* Errors are kept for each thread. */
  CHECK(evenkeel_message()[0] == '\0');
  return NULL;
}

static void test_array(void) {
  evenkeel_budget *budget = NULL;
  MUST(evenkeel_budget_new("16MiB", &budget));
  evenkeel_array *array = open_numbers(budget);
  evenkeel_array_info info = {.size = sizeof info};
  MUST(evenkeel_array_get_info(array, &info));
  CHECK(info.axes == 2 && info.shape[0] == ROWS && info.shape[1] == COLUMNS && info.rows == ROWS);
  CHECK(info.row_bytes == sizeof numbers[0] && info.item_bytes == 4);
  CHECK(strcmp(info.dtype, "float32") == 0 && strcmp(info.format, "raw") == 0);
  CHECK(info.engine[0] != '\0' && info.why[0] != '\0');

  float out[3][COLUMNS];
  const uint64_t wanted[] = {999, 5, 5};
  MUST(evenkeel_array_gather(array, wanted, 3, out, sizeof out));
  for (int i = 0; i < 3; ++i) CHECK(memcmp(out[i], numbers[wanted[i]], sizeof out[i]) == 0);
  FAILS(evenkeel_array_read(array, ROWS - 1, 2, out, sizeof out), EVENKEEL_INDEX, "x.f32");
  FAILS(evenkeel_array_read(array, 0, 4, out, sizeof out), EVENKEEL_INVALID, "48");
  FAILS(evenkeel_array_read(array, 0, 1, NULL, 16), EVENKEEL_INVALID, "out is NULL");
  FAILS(evenkeel_array_gather(array, NULL, 1, out, sizeof out), EVENKEEL_INVALID, "rows is NULL");
  FAILS(evenkeel_array_read(NULL, 0, 1, out, sizeof out), EVENKEEL_INVALID, "array is NULL");

  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, read_rows, array);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);

  evenkeel_stats stats = {.size = sizeof stats};
  MUST(evenkeel_array_get_stats(array, &stats));
  CHECK(stats.bytes_from_mapping >= 2 * sizeof numbers); /* the file fits the budget */
  evenkeel_budget_info known = {.size = sizeof known};
  MUST(evenkeel_budget_get_info(budget, &known));
  CHECK(known.limit == 16 << 20 && known.peak <= known.limit && known.left <= known.limit);
  MUST(evenkeel_budget_resize(budget, 32 << 20));
  MUST(evenkeel_budget_get_info(budget, &known));
  CHECK(known.limit == 32 << 20);
  evenkeel_budget_free(budget); /* the array keeps what it needs of it */
  MUST(evenkeel_array_read(array, 7, 1, out, sizeof out));

  MUST(evenkeel_array_close(array));
  MUST(evenkeel_array_close(array));
  FAILS(evenkeel_array_read(array, 0, 1, out, sizeof out), EVENKEEL_CLOSED, "close");
  FAILS(evenkeel_array_get_info(array, &info), EVENKEEL_CLOSED, "close");
  evenkeel_array_free(array);
}

static void test_weights(void) {
  evenkeel_weights *weights = NULL;
  MUST(evenkeel_weights_open("model.safetensors", NULL, &weights));
  size_t count = 0, number = 99;
  MUST(evenkeel_weights_count(weights, &count));
  CHECK(count == 2);
  MUST(evenkeel_weights_find(weights, "b", &number));
  evenkeel_tensor tensor = {.size = sizeof tensor};
  MUST(evenkeel_weights_tensor(weights, number, &tensor));
  CHECK(strcmp(tensor.name, "b") == 0 && strcmp(tensor.type, "U8") == 0);
  CHECK(strcmp(tensor.dtype, "uint8") == 0 && strcmp(tensor.path, "model.safetensors") == 0);
  CHECK(tensor.axes == 1 && tensor.shape[0] == 3 && tensor.bytes == 3);
  char text[4] = "";
  MUST(evenkeel_weights_read(weights, number, text, 3));
  CHECK(strcmp(text, "xyz") == 0);
  FAILS(evenkeel_weights_read(weights, number, text, 4), EVENKEEL_INVALID, "3 bytes");
  FAILS(evenkeel_weights_find(weights, "bb", &number), EVENKEEL_INDEX, "bb");
  FAILS(evenkeel_weights_tensor(weights, 2, &tensor), EVENKEEL_INDEX, "tensor 2 of 2");
  evenkeel_weights *none = weights;
  FAILS(evenkeel_weights_open("train.bin", NULL, &none), EVENKEEL_FORMAT, "train.bin");
  CHECK(none == NULL);
  MUST(evenkeel_weights_close(weights));
  FAILS(evenkeel_weights_count(weights, &count), EVENKEEL_CLOSED, "close");
  evenkeel_weights_free(weights);
}

/* A child of fork goes on using what the parent opened, except loaders. */
static void test_fork(void) {
  evenkeel_array *array = open_numbers(NULL);
  evenkeel_weights *weights = NULL;
  MUST(evenkeel_weights_open("model.safetensors", NULL, &weights));
  const pid_t child = fork();
  if (child == 0) {
    float row[COLUMNS], tensor[4];
    MUST(evenkeel_array_read(array, 7, 1, row, sizeof row));
    MUST(evenkeel_weights_read(weights, 0, tensor, sizeof tensor));
    _exit(memcmp(row, numbers[7], sizeof row) != 0 || memcmp(tensor, numbers, sizeof tensor) != 0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  float tensor[4]; /* and so does the parent */
  MUST(evenkeel_weights_read(weights, 0, tensor, sizeof tensor));
  CHECK(memcmp(tensor, numbers, sizeof tensor) == 0);
  evenkeel_weights_free(weights);
  evenkeel_array_free(array);
}

static void test_guard(void) {
  evenkeel_guard *guard = NULL;
  evenkeel_guard_options options = {.size = sizeof options, .budget = 1};
  FAILS(evenkeel_guard_new(&options, &guard), EVENKEEL_INVALID, "budget");
  options.budget = 4 << 20;
  options.access = "sideways";
  FAILS(evenkeel_guard_new(&options, &guard), EVENKEEL_INVALID, "sideways");
  options.access = "leave";
  MUST(evenkeel_guard_new(&options, &guard));

  const int fd = open("train.bin", O_RDONLY);
  void *address = mmap(NULL, sizeof stream, PROT_READ, MAP_SHARED, fd, 0);
  evenkeel_guard_mapping mapping = {.size = sizeof mapping,
                                    .address = address,
                                    .length = sizeof stream,
                                    .fd = -1,
                                    .removed_before_unmap = 1};
  FAILS(evenkeel_guard_add(guard, &mapping), EVENKEEL_INVALID, "-1");
  mapping.fd = fd;
  MUST(evenkeel_guard_add(guard, &mapping));
  CHECK(memcmp(address, stream, sizeof stream) == 0);
  evenkeel_guard_report report = {.size = sizeof report};
  MUST(evenkeel_guard_get_report(guard, &report));
  CHECK(report.mappings == 1 && report.budget == 4 << 20 && report.failures);
  MUST(evenkeel_guard_remove(guard, address));
  FAILS(evenkeel_guard_remove(guard, address), EVENKEEL_INDEX, "guarded");
  munmap(address, sizeof stream);
  close(fd);
  evenkeel_guard_free(guard);
}

/* exit() has then destroyed the thread_local objects of C++. */
static void test_at_exit(void) {
  CHECK(strstr(evenkeel_message(), "guarded") != NULL); /* the last error of main */
  FAILS(evenkeel_array_read(NULL, 0, 1, NULL, 0), EVENKEEL_INVALID, "array is NULL");
  evenkeel_guard *guard = NULL;
  evenkeel_guard_options options = {.size = sizeof options, .budget = 4 << 20};
  CHECK(evenkeel_guard_new(&options, &guard) == EVENKEEL_OK);
  evenkeel_guard_report report = {.size = sizeof report};
  CHECK(evenkeel_guard_get_report(guard, &report) == EVENKEEL_OK);
  CHECK(report.failures && report.failures[0] == '\0');
  evenkeel_guard_free(guard);
  if (failures != 0) _exit(1);
}

int main(void) {
  char folder[] = "/tmp/evenkeel-c-XXXXXX";
  if (!mkdtemp(folder) || chdir(folder) != 0) {
    perror("a temporary folder");
    return 1;
  }
  make_files();
  CHECK(strcmp(evenkeel_version(), EVENKEEL_VERSION) == 0);
  CHECK(evenkeel_message()[0] == '\0');
  test_errors();
  test_struct_sizes();
  test_array();
  test_tokens();
  test_rows();
  test_weights();
  test_fork();
  test_guard();
  static const char *const files[] = {"x.f32", "y.i32", "train.bin", "model.safetensors"};
  for (size_t i = 0; i < sizeof files / sizeof *files; ++i) unlink(files[i]);
  const int left = rmdir(folder);
  if (left != 0) perror(folder);
  printf("c interface: %d failures\n", failures);
  if (failures == 0 && atexit(test_at_exit) != 0) ++failures;
  return failures == 0 ? 0 : 1;
}
