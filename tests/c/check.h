/* Checks, and the data that the tests of the C interface read. */
#pragma once

#include <evenkeel/evenkeel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int failures;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      ++failures;                                                     \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      fprintf(stderr, "  the last error: %s\n", evenkeel_message());  \
    }                                                                 \
  } while (0)
/* For what must work before the rest makes sense. */
#define MUST(call)                                                                       \
  do {                                                                                   \
    if ((call) != EVENKEEL_OK) {                                                         \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, evenkeel_message()); \
      exit(1);                                                                           \
    }                                                                                    \
  } while (0)
/* A call that fails with a code, and says a word of what is wrong. */
#define FAILS(call, code, words)                        \
  do {                                                  \
    CHECK((call) == (code));                            \
    CHECK(strstr(evenkeel_message(), (words)) != NULL); \
  } while (0)

enum { ROWS = 1000, COLUMNS = 4, TOKENS = 20000, BLOCK = 32, BATCH = 4 };
extern float numbers[ROWS][COLUMNS];
extern int32_t labels[ROWS];
extern uint16_t stream[TOKENS];

void write_file(const char *name, const void *data, size_t bytes);
/* x.f32 as an array of ROWS rows. */
evenkeel_array *open_numbers(const evenkeel_budget *budget);

void test_tokens(void);
void test_rows(void);
