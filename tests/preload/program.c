/* A program that knows nothing of Evenkeel and does what it is told, a line at a time, as the tests
 * of the preloaded library need it. Plain C, so that musl's compiler takes it, too. Each line is
 * answered by one; numbers are hexadecimal, "!N" is errno.
 *
 *   map PATH LENGTH OFFSET PROT FLAGS AT   mmap; PATH "-" is anonymous, "memfd" one, "gone:PATH" is
 *                                          removed before it is mapped
 *   unmap AT LENGTH          remap AT LENGTH NEW FLAGS TO     protect AT LENGTH PROT
 *   advise AT LENGTH HOW     posix_advise AT LENGTH HOW       pkey AT LENGTH PROT
 *   raw_unmap AT LENGTH      raw_anon AT LENGTH               reorder AT LENGTH PAGE
 *   shmat AT LENGTH          over it, with SHM_REMAP
 *   fill AT LENGTH SEED      words of 8 bytes: number + SEED
 *   check AT LENGTH SEED     how many are not so
 *   resident AT LENGTH       pages that this process has mapped now
 *   fork, clone, _Fork       the child answers, until it is told to exit; then the parent does
 *   vfork CMD, spawn CMD     runs the program CMD; its exit code
 *   vfork_nnp CMD            the same as vfork, after PR_SET_NO_NEW_PRIVS in the child
 *   exec                     becomes itself anew          leave   main thread ends, others go on
 *   close_all                all descriptors but 0, 1, 2  setuid  to who it is
 *   lock PATH                a record lock, kept          threads how many there are
 *   descriptors              how many are open
 *   error PATH               what errno is after a map that works
 *   handler PATH             maps and unmaps in a signal handler, 100 times a second or more
 *   sandbox                  a seccomp filter for all threads, which kills for gettid, madvise and
 *                            other calls that this program does not make
 *   unshare FLAGS            setns NAME, one of its own       idle     in one more thread
 *   storm PATH LENGTH N      threads map, check, change, unmap N times each; how many checks failed
 *   cost PATH LENGTH N       mmap and munmap, N times; nanoseconds for a pair ("-": anonymous)
 *   say TEXT, pid, exit CODE
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SHM_REMAP
#define SHM_REMAP 040000
#endif

extern char** environ;
extern pid_t _Fork(void) __attribute__((weak));
extern int pkey_mprotect(void*, size_t, int, int) __attribute__((weak));
extern int remap_file_pages(void*, size_t, int, size_t, int) __attribute__((weak));

typedef unsigned long word;

static char* self;
static char words[8][512];

static word number(int i) { return strtoul(words[i], NULL, 16); }
static void* at(int i) { return (void*)number(i); }

static void answer(word value) {
  printf("%lx\n", value);
  fflush(stdout);
}
static void answer_call(long result) {
  if (result == -1) {
    printf("!%d\n", errno);
    fflush(stdout);
  } else {
    answer((word)result);
  }
}

static int open_as_told(const char* path) {
  if (strcmp(path, "-") == 0) return -1;
  if (strcmp(path, "memfd") == 0) {
    const int fd = (int)syscall(SYS_memfd_create, "data", 0);
    if (ftruncate(fd, 64 << 20) != 0) return -1;
    return fd;
  }
  if (strncmp(path, "gone:", 5) == 0) {
    const int fd = open(path + 5, O_RDWR | O_CLOEXEC);
    unlink(path + 5);
    return fd;
  }
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  return fd >= 0 ? fd : open(path, O_RDONLY | O_CLOEXEC);
}

static void* map(const char* path, word length, word offset, int prot, int flags, void* where) {
  const int fd = open_as_told(path);
  void* got = mmap(where, length, prot, flags, fd, (off_t)offset);
  const int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  return got;
}

static void fill(uint64_t* from, word length, word seed) {
  for (word i = 0; i < length / 8; ++i) from[i] = i + seed;
}
static word wrong(const uint64_t* from, word length, word seed) {
  word count = 0;
  for (word i = 0; i < length / 8; ++i) count += from[i] != i + seed;
  return count;
}

static word resident(word begin, word length) {
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  word count = 0;
  for (word page = begin / 4096; page < (begin + length) / 4096; ++page) {
    uint64_t entry = 0;
    if (pread(fd, &entry, 8, (off_t)(page * 8)) == 8) count += entry >> 63;
  }
  close(fd);
  return count;
}

static word entries_of(const char* folder) {
  word count = 0;
  DIR* dir = opendir(folder);
  while (dir && readdir(dir)) ++count;
  if (dir) closedir(dir);
  return count - 2;
}

static int status_of(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0x100 + status;
}

/* Returns in the child. The parent waits until the child has ended. */
static void forked(pid_t child) {
  if (child == 0) {
    answer(0);
  } else if (child < 0) {
    answer_call(-1);
  } else {
    answer((word)status_of(child));
  }
}

struct storm {
  const char* path;
  word length, rounds, seed, failed;
};

/* Reads a shared and a private mapping, writes into another private one, cuts holes, and moves. */
static void* storm(void* given) {
  struct storm* s = given;
  const word half = s->length / 2;
  for (word i = 0; i < s->rounds; ++i) {
    const int kind = (int)((i + s->seed) % 4);
    const int prot = kind == 1 ? PROT_READ | PROT_WRITE : PROT_READ;
    uint64_t* m = map(s->path, s->length, 0, prot, kind == 0 ? MAP_SHARED : MAP_PRIVATE, NULL);
    if (m == MAP_FAILED) {
      ++s->failed;
      continue;
    }
    s->failed += wrong(m, half, 0) != 0;
    if (kind == 1) {
      fill(m, half, i);
      sched_yield();
      s->failed += wrong(m, half, i) != 0;
    } else if (kind == 2) { /* another mapping in the middle of it */
      uint64_t* hole = mmap((char*)m + half, half, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      fill(hole, half, i);
      sched_yield();
      s->failed += wrong(hole, half, i) != 0 || wrong(m, half, 0) != 0;
    } else if (kind == 3) { /* read-only, then written, then read-only */
      mprotect(m, half, PROT_READ | PROT_WRITE);
      fill(m, half, i);
      mprotect(m, half, PROT_READ);
      sched_yield();
      s->failed += wrong(m, half, i) != 0;
      uint64_t* moved = mremap(m, s->length, s->length * 2, MREMAP_MAYMOVE);
      if (moved != MAP_FAILED) {
        s->failed += wrong(moved, half, i) != 0;
        munmap(moved + s->length / 8, s->length);
        m = moved;
      }
    }
    munmap((char*)m + half, half);
    s->failed += kind != 1 && kind != 3 && wrong(m, half, 0) != 0;
    munmap(m, half);
    /* Something else is soon mapped at the address. */
    uint64_t* next =
        mmap(NULL, s->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(next, s->length, i);
    sched_yield();
    s->failed += wrong(next, s->length, i) != 0;
    munmap(next, s->length);
  }
  return NULL;
}

static word run_storm(const char* path, word length, word rounds) {
  enum { kThreads = 4 };
  pthread_t threads[kThreads];
  struct storm storms[kThreads];
  word failed = 0;
  for (int i = 0; i < kThreads; ++i) {
    storms[i] = (struct storm){path, length, rounds, (word)i, 0};
    pthread_create(&threads[i], NULL, storm, &storms[i]);
  }
  for (int i = 0; i < kThreads; ++i) {
    pthread_join(threads[i], NULL);
    failed += storms[i].failed;
  }
  return failed;
}

static word cost(const char* path, word length, word rounds) {
  const int fd = open_as_told(path);
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (word i = 0; i < rounds; ++i) munmap(mmap(NULL, length, PROT_READ, flags, fd, 0), length);
  clock_gettime(CLOCK_MONOTONIC, &end);
  if (fd >= 0) close(fd);
  return (word)((end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec) / rounds;
}

static char handled_path[512];
static void handler(int signal) {
  const int error = errno;
  void* m = map(handled_path, 1 << 20, 0, PROT_READ, MAP_SHARED, NULL);
  if (m != MAP_FAILED) munmap(m, 1 << 20);
  errno = error;
  (void)signal;
}
static void handle(const char* path) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  strcpy(handled_path, path);
  sigaction(SIGALRM, &action, NULL);
  const struct itimerval often = {{0, 500}, {0, 500}};
  setitimer(ITIMER_REAL, &often, NULL);
}

static void loop(void);
static void* rest(void* unused) {
  usleep(100000); /* the main thread ends meanwhile */
  loop();
  return unused;
}

static void* idle(void* unused) {
  for (;;) pause();
  return unused;
}

static void enter(const char* name) {
  char path[600];
  snprintf(path, sizeof path, "/proc/self/ns/%s", name);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  const int result = setns(fd, 0);
  const int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  answer_call(result);
}

static void shm_over(void* where, word length) {
  const int id = shmget(IPC_PRIVATE, length, IPC_CREAT | 0600);
  void* got = shmat(id, where, SHM_REMAP);
  const int error = errno;
  shmctl(id, IPC_RMID, NULL);
  errno = error;
  answer_call((long)got);
}

static void lock(const char* path) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  answer_call(fcntl(fd, F_SETLK, &whole));
}

static void spawn(const char* command) {
  pid_t child;
  char* arguments[] = {"sh", "-c", (char*)command, NULL};
  const int error = posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ);
  answer(error != 0 ? (word)error : (word)status_of(child));
}

static void vforked(const char* command, int no_new_privileges) {
  const pid_t child = vfork();
  if (child == 0) {
    if (no_new_privileges) prctl(PR_SET_NO_NEW_PRIVS, 1UL, 0UL, 0UL, 0UL);
    /* Not allowed after vfork, but programs do it. */
    munmap(mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1 << 20);
    execl("/bin/sh", "sh", "-c", command, (char*)NULL);
    _exit(127);
  }
  answer((word)status_of(child));
}

/* Structures and numbers of the kernel, because musl has no kernel headers. */
static void sandbox(void) {
  struct instruction {
    uint16_t code;
    uint8_t if_true, if_false;
    uint32_t value;
  };
  enum { kLoad = 0x20, kJumpIfEqual = 0x15, kReturn = 0x06, kSetFilter = 1, kAllThreads = 1 };
  const uint32_t kill_process = 0x80000000, allow = 0x7fff0000;
  static const int kKilled[] = {SYS_gettid,        SYS_madvise, SYS_msync, SYS_readlinkat,
                                SYS_sched_getattr, SYS_tgkill,  436 /* close_range */};
  struct instruction code[2 + 2 * sizeof kKilled / sizeof *kKilled];
  unsigned n = 0;
  code[n++] = (struct instruction){kLoad, 0, 0, 0}; /* loads the number of the call */
  for (unsigned i = 0; i < sizeof kKilled / sizeof *kKilled; ++i) {
    code[n++] = (struct instruction){kJumpIfEqual, 0, 1, (uint32_t)kKilled[i]};
    code[n++] = (struct instruction){kReturn, 0, 0, kill_process};
  }
  code[n++] = (struct instruction){kReturn, 0, 0, allow};
  const struct {
    unsigned short length;
    const struct instruction* code;
  } filter = {(unsigned short)n, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1UL, 0UL, 0UL, 0UL) != 0) {
    answer_call(-1);
    return;
  }
  answer_call(syscall(SYS_seccomp, kSetFilter, kAllThreads, &filter));
}

static int is(const char* name) { return strcmp(words[0], name) == 0; }

static void obey(const char* line) {
  if (is("map")) {
    answer_call((long)map(words[1], number(2), number(3), (int)number(4), (int)number(5), at(6)));
  } else if (is("unmap")) {
    answer_call(munmap(at(1), number(2)));
  } else if (is("remap")) {
    answer_call((long)mremap(at(1), number(2), number(3), (int)number(4), at(5)));
  } else if (is("protect")) {
    answer_call(mprotect(at(1), number(2), (int)number(3)));
  } else if (is("pkey")) {
    answer_call(pkey_mprotect ? pkey_mprotect(at(1), number(2), (int)number(3), -1) : 0);
  } else if (is("advise")) {
    answer_call(madvise(at(1), number(2), (int)number(3)));
  } else if (is("posix_advise")) {
    answer((word)posix_madvise(at(1), number(2), (int)number(3)));
  } else if (is("raw_unmap")) {
    answer_call(syscall(SYS_munmap, at(1), number(2)));
  } else if (is("raw_anon")) {
    answer_call(syscall(SYS_mmap, at(1), number(2), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  } else if (is("reorder")) {
    answer_call(remap_file_pages(at(1), number(2), 0, number(3), 0));
  } else if (is("shmat")) {
    shm_over(at(1), number(2));
  } else if (is("fill")) {
    fill(at(1), number(2), number(3));
    answer(0);
  } else if (is("check")) {
    answer(wrong(at(1), number(2), number(3)));
  } else if (is("resident")) {
    answer(resident(number(1), number(2)));
  } else if (is("fork")) {
    forked(fork());
  } else if (is("clone")) {
    forked((pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  } else if (is("_Fork")) {
    forked(_Fork ? _Fork() : fork());
  } else if (is("vfork")) {
    vforked(line + 6, 0);
  } else if (is("vfork_nnp")) {
    vforked(line + 10, 1);
  } else if (is("spawn")) {
    spawn(line + 6);
  } else if (is("exec")) {
    execl(self, self, (char*)NULL);
    answer_call(-1);
  } else if (is("leave")) {
    pthread_t other;
    pthread_create(&other, NULL, rest, NULL);
    pthread_exit(NULL);
  } else if (is("close_all")) {
    for (int fd = 3; fd < 1024; ++fd) close(fd);
    answer(0);
  } else if (is("setuid")) {
    answer_call(setresuid(getuid(), getuid(), getuid()));
  } else if (is("lock")) {
    lock(words[1]);
  } else if (is("threads")) {
    answer(entries_of("/proc/self/task"));
  } else if (is("descriptors")) {
    answer(entries_of("/proc/self/fd"));
  } else if (is("error")) {
    errno = 77;
    void* m = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE, open(words[1], O_RDONLY | O_CLOEXEC), 0);
    munmap(m, 1 << 20);
    answer((word)errno);
  } else if (is("sandbox")) {
    sandbox();
  } else if (is("unshare")) {
    answer_call(unshare((int)number(1)));
  } else if (is("setns")) {
    enter(words[1]);
  } else if (is("idle")) {
    pthread_t other;
    answer((word)pthread_create(&other, NULL, idle, NULL));
  } else if (is("handler")) {
    handle(words[1]);
    answer(0);
  } else if (is("storm")) {
    answer(run_storm(words[1], number(2), number(3)));
  } else if (is("cost")) {
    answer(cost(words[1], number(2), number(3)));
  } else if (is("say")) {
    printf("%s\n", words[1]);
    fflush(stdout);
  } else if (is("pid")) {
    answer((word)getpid());
  } else if (is("exit")) {
    exit((int)number(1));
  } else {
    printf("? %s\n", words[0]);
    fflush(stdout);
  }
}

/* Uses read(): what stdio reads ahead would be lost in exec and duplicated in fork. */
static int next_line(char* line, size_t size) {
  size_t length = 0;
  for (;;) {
    const ssize_t got = read(0, line + length, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got != 1) return 0;
    if (line[length] == '\n') break;
    if (length + 2 < size) ++length;
  }
  line[length] = 0;
  return 1;
}

static void loop(void) {
  char line[2048];
  while (next_line(line, sizeof line)) {
    memset(words, 0, sizeof words);
    sscanf(line, "%511s %511s %511s %511s %511s %511s %511s", words[0], words[1], words[2],
           words[3], words[4], words[5], words[6]);
    obey(line);
  }
}

int main(int count, char** arguments) {
  (void)count;
  self = arguments[0];
  loop();
  return 0;
}
