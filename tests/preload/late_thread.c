/* Preloaded in a test, before the guard's library: simulates a busy machine, where a new thread does
 * not run before the program calls prctl, and then only a moment later. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

static volatile int called;

struct start {
  void* (*run)(void*);
  void* argument;
};

static void* run_late(void* given) {
  const struct start start = *(struct start*)given;
  free(given);
  while (!__atomic_load_n(&called, __ATOMIC_ACQUIRE)) usleep(1000);
  usleep(100000);
  return start.run(start.argument);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
  int (*next)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) =
      (int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))dlsym(RTLD_NEXT,
                                                                                 "pthread_create");
  struct start* start = malloc(sizeof *start);
  *start = (struct start){run, argument};
  return next(thread, attributes, run_late, start);
}

int prctl(int option, ...) {
  unsigned long values[4];
  va_list rest;
  va_start(rest, option);
  for (int i = 0; i < 4; ++i) values[i] = va_arg(rest, unsigned long);
  va_end(rest);
  int (*next)(int, ...) = (int (*)(int, ...))dlsym(RTLD_NEXT, "prctl");
  __atomic_store_n(&called, 1, __ATOMIC_RELEASE);
  return next(option, values[0], values[1], values[2], values[3]);
}
