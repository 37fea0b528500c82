/* Preloaded in a test: a system that has no room for another thread. */
int pthread_create(void* thread, const void* attributes, void* (*run)(void*), void* argument) {
  (void)thread;
  (void)attributes;
  (void)run;
  (void)argument;
  return 11; /* EAGAIN */
}
