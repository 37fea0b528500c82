/* Preloaded in a test: simulates a system that cannot start another thread. */
int pthread_create(void* thread, const void* attributes, void* (*run)(void*), void* argument) {
  (void)thread;
  (void)attributes;
  (void)run;
  (void)argument;
  return 11; /* EAGAIN */
}
