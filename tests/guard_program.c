// A program that knows nothing of the guard and checks its own memory. Word i of its files is i
// before anyone writes. Says "wrong N" at the end: how many words were not what they should be.
//
//   scan FILE MBPS              reads it through, no faster than that
//   crops FILE COUNT MBPS       2 KiB here and there; what the disk gives is no faster than that
//   tree FILE FILE COUNT MBPS   so many forked children and itself scan both, each at that pace
//   mix FILE ROUNDS THREADS     writes even pages through a shared mapping, odd ones through a
//                               private one, each thread its own pages; says a checksum, too
//   remap FILE ROUNDS THREADS   maps, checks, moves, unmaps in part, maps over, unmaps
//   forks FILE ROUNDS           a child each time, which reads here and there, and writes
//   shorten FILE                cuts it to the half, reads on in that, then touches what is gone
//   hold FILE                   reads it over and over until its input ends
//   heap FILE MIB               scans it with so much memory of its own
//   small FILE COUNT            maps so many parts of 512 KiB of it and reads them
//   shards FOLDER COUNT         maps its files 0, 1, ..., closes them, and reads them all, twice
//   passing FOLDER COUNT FILE   creates, maps, unmaps and removes so many files; then scans FILE
//   crowd FILE COUNT            so many children at once, each with a mapping of its own
//   unlinked FILE HOW           removes it, maps it and reads it through, twice; HOW is "open" or
//                               "closed": its descriptor meanwhile
//   sleep MS    say TEXT    exit CODE    die SIGNAL
//
// A last word "within=MIB": scan, crops, tree and unlinked wait while more than that of the file they
// read is cached. A guard may have to wait for a processor; that it brings memory down is tested.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kPage = 4096, kWords = kPage / 8, kMib = 1 << 20 };

static void require(int good, const char* what) {
  if (good) return;
  perror(what);
  _exit(99);
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sleep_ns(uint64_t ns) {
  struct timespec rest = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
  while (nanosleep(&rest, &rest) != 0) {
  }
}

static uint64_t next_random(uint64_t* state) {  // splitmix64
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

struct file {
  int fd;
  uint64_t bytes;
};

static struct file open_file(const char* path, int flags) {
  struct file file = {open(path, flags | O_CLOEXEC), 0};
  require(file.fd >= 0, path);
  struct stat status;
  require(fstat(file.fd, &status) == 0, "fstat");
  file.bytes = (uint64_t)status.st_size;
  return file;
}

static volatile uint64_t* map_words(struct file file, int protection, int flags) {
  void* at = mmap(NULL, file.bytes, protection, flags, file.fd, 0);
  require(at != MAP_FAILED, "mmap");
  return at;
}

static uint64_t bound = 0;  // of "within", in bytes; 0: none

// How many bytes of a mapping are cached.
static uint64_t cached_of(volatile uint64_t* words, uint64_t bytes) {
  const uint64_t pages = (bytes + kPage - 1) / kPage;
  unsigned char* in_core = malloc(pages);
  require(in_core != NULL && mincore((void*)words, bytes, in_core) == 0, "mincore");
  uint64_t cached = 0;
  for (uint64_t page = 0; page < pages; ++page) cached += in_core[page] & 1;
  free(in_core);
  return cached * kPage;
}

static void wait_for_guard(volatile uint64_t* words, uint64_t bytes) {
  if (bound == 0) return;
  for (int ms = 0; cached_of(words, bytes) > bound; ++ms) {
    require(ms < 60000, "the guard did not bring memory down within a minute");
    sleep_ns(1000000);
  }
}

// Of so many bytes, one MiB at a time at the most; never makes up for time lost.
static uint64_t wrong_in_scan(volatile uint64_t* words, uint64_t bytes, uint64_t mbps) {
  uint64_t wrong = 0;
  for (uint64_t at = 0; at < bytes; at += kMib) {
    const uint64_t began = now_ns();
    const uint64_t end = at + kMib < bytes ? at + kMib : bytes;
    for (uint64_t word = at / 8; word < end / 8; ++word) wrong += words[word] != word;
    const uint64_t took = now_ns() - began, due = kMib * 1000u / mbps;
    if (took < due) sleep_ns(due - took);
    wait_for_guard(words, bytes);
  }
  return wrong;
}

static uint64_t read_from_disk(void) {
  static int fd = -1;
  if (fd < 0) fd = open("/proc/self/io", O_RDONLY | O_CLOEXEC);
  char text[512] = {0};
  require(pread(fd, text, sizeof text - 1, 0) > 0, "/proc/self/io");
  const char* at = strstr(text, "\nread_bytes: ");
  require(at != NULL, "read_bytes");
  return strtoull(at + 13, NULL, 10);
}

static uint64_t wrong_in_crops(struct file file, long count, uint64_t mbps) {
  volatile uint64_t* words = map_words(file, PROT_READ, MAP_SHARED);
  uint64_t wrong = 0, seed = 1, before = read_from_disk(), waited = before;
  for (long i = 0; i < count; ++i) {
    const uint64_t begin = next_random(&seed) % (file.bytes / 8 - 256);
    for (uint64_t word = begin; word < begin + 256; ++word) wrong += words[word] != word;
    const uint64_t now = read_from_disk();
    if (now != before) sleep_ns((now - before) * 1000u / mbps);
    before = now;
    if (now - waited < kMib) continue;
    wait_for_guard(words, file.bytes);
    waited = now;
  }
  return wrong;
}

static uint64_t wrong_of_child(pid_t child) {
  int status = 0;
  require(waitpid(child, &status, 0) == child, "waitpid");
  return status != 0;
}

static uint64_t wrong_in_tree(struct file one, struct file two, long count, uint64_t mbps) {
  volatile uint64_t* first = map_words(one, PROT_READ, MAP_SHARED);
  pid_t children[64];
  long i = 0;
  for (; i < count; ++i) {
    children[i] = fork();
    require(children[i] >= 0, "fork");
    if (children[i] == 0) break;
  }
  // The second is mapped by each for itself. Half of them begin with it.
  volatile uint64_t* second = map_words(two, PROT_READ, MAP_SHARED);
  uint64_t wrong = 0;
  if (i % 2 == 0) wrong += wrong_in_scan(first, one.bytes, mbps);
  wrong += wrong_in_scan(second, two.bytes, mbps);
  if (i % 2 == 1) wrong += wrong_in_scan(first, one.bytes, mbps);
  if (i < count) _exit(wrong != 0);
  for (i = 0; i < count; ++i) wrong += wrong_of_child(children[i]);
  return wrong;
}

// ---- mix

struct mix {
  volatile uint64_t *shared, *private;
  uint64_t* last;  // by page: what was written last, 0: nothing
  uint64_t pages, number, threads, rounds, wrong, sum;
};

static volatile uint64_t* written(const struct mix* mix, uint64_t page) {
  return (page % 2 == 0 ? mix->shared : mix->private) + page * kWords;
}

// Eight words of a page are written, the others never.
static uint64_t wrong_in_page(const struct mix* mix, uint64_t page) {
  volatile uint64_t* own = written(mix, page);
  volatile uint64_t* other = (page % 2 == 0 ? mix->private : mix->shared) + page * kWords;
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kWords; i += 64) {
    const uint64_t plain = page * kWords + i, value = mix->last[page] ? mix->last[page] + i : plain;
    wrong += own[i] != value;
    // What is private is nowhere else; what is shared is seen where nothing private hides it.
    wrong += other[i] != (page % 2 == 0 ? value : plain);
    wrong += own[i + 1] != plain + 1;
  }
  return wrong;
}

static void* mix_thread(void* given) {
  struct mix* mix = given;
  uint64_t seed = mix->number + 1;
  for (uint64_t round = 0; round < mix->rounds; ++round) {
    const uint64_t of = next_random(&seed) % (mix->pages / mix->threads);
    const uint64_t page = of * mix->threads + mix->number;
    mix->wrong += wrong_in_page(mix, page);
    mix->last[page] = next_random(&seed) | 1;
    for (uint64_t i = 0; i < kWords; i += 64) written(mix, page)[i] = mix->last[page] + i;
  }
  for (uint64_t page = mix->number; page < mix->pages; page += mix->threads) {
    mix->wrong += wrong_in_page(mix, page);
    for (uint64_t i = 0; i < kWords; ++i) {
      mix->sum = mix->sum * 31 + mix->shared[page * kWords + i];
      mix->sum = mix->sum * 31 + mix->private[page * kWords + i];
    }
  }
  return NULL;
}

static uint64_t wrong_in_mix(struct file file, uint64_t rounds, uint64_t threads) {
  struct mix mix = {.pages = file.bytes / kPage / threads * threads, .threads = threads};
  mix.rounds = rounds;
  mix.shared = map_words(file, PROT_READ | PROT_WRITE, MAP_SHARED);
  mix.private = map_words(file, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  mix.last = calloc(mix.pages, sizeof *mix.last);
  require(mix.last != NULL && threads <= 16, "calloc");
  struct mix parts[16];
  pthread_t ids[16];
  for (uint64_t i = 0; i < threads; ++i) {
    parts[i] = mix;
    parts[i].number = i;
    require(pthread_create(&ids[i], NULL, mix_thread, &parts[i]) == 0, "pthread_create");
  }
  uint64_t wrong = 0, sum = 0;
  for (uint64_t i = 0; i < threads; ++i) {
    pthread_join(ids[i], NULL);
    wrong += parts[i].wrong;
    sum ^= parts[i].sum;
  }
  printf("sum %016llx\n", (unsigned long long)sum);
  return wrong;
}

// ---- remap

struct remap {
  struct file file;
  uint64_t rounds, seed, wrong;
};

static uint64_t wrong_at(volatile uint64_t* words, uint64_t first, uint64_t bytes) {
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < bytes / 8; i += 509) wrong += words[i] != first + i;
  return wrong;
}

static void* remap_thread(void* given) {
  struct remap* job = given;
  const uint64_t mib = job->file.bytes / kMib;
  for (uint64_t round = 0; round < job->rounds; ++round) {
    const uint64_t begin = next_random(&job->seed) % (mib - 4);
    const uint64_t first = begin * kMib / 8, bytes = 4 * kMib;
    char* at = mmap(NULL, bytes, PROT_READ, next_random(&job->seed) % 2 ? MAP_SHARED : MAP_PRIVATE,
                    job->file.fd, (off_t)(begin * kMib));
    require(at != MAP_FAILED, "mmap");
    volatile uint64_t* words = (void*)at;
    job->wrong += wrong_at(words, first, bytes);
    // A hole in the middle, which other memory takes: that must stay as it is written.
    char* hole = mmap(at + kMib, kMib, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    require(hole == at + kMib, "mmap over");
    memset(hole, 0x5a, kMib);
    job->wrong += wrong_at(words, first, kMib);
    job->wrong += wrong_at(words + 2 * kMib / 8, first + 2 * kMib / 8, 2 * kMib);
    for (uint64_t i = 0; i < kMib; i += 512) job->wrong += hole[i] != 0x5a;
    // The end moves elsewhere, and grows.
    char* moved = mremap(at + 2 * kMib, 2 * kMib, kMib, 0);
    require(moved != MAP_FAILED, "mremap");
    moved = mremap(moved, kMib, 2 * kMib, MREMAP_MAYMOVE);
    require(moved != MAP_FAILED, "mremap");
    job->wrong += wrong_at((void*)moved, first + 2 * kMib / 8, 2 * kMib);
    for (uint64_t i = 0; i < kMib; i += 512) job->wrong += hole[i] != 0x5a;
    require(munmap(moved, 2 * kMib) == 0 && munmap(at, 2 * kMib) == 0, "munmap");
  }
  return NULL;
}

static uint64_t wrong_in_remap(struct file file, uint64_t rounds, uint64_t threads) {
  struct remap jobs[16];
  pthread_t ids[16];
  require(threads <= 16, "threads");
  for (uint64_t i = 0; i < threads; ++i) {
    jobs[i] = (struct remap){file, rounds, i + 1, 0};
    require(pthread_create(&ids[i], NULL, remap_thread, &jobs[i]) == 0, "pthread_create");
  }
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < threads; ++i) {
    pthread_join(ids[i], NULL);
    wrong += jobs[i].wrong;
  }
  return wrong;
}

// ---- the rest

// Page 0 belongs to the children: each adds one to its first word.
static uint64_t wrong_in_forks(struct file file, uint64_t rounds) {
  volatile uint64_t* words = map_words(file, PROT_READ | PROT_WRITE, MAP_SHARED);
  uint64_t wrong = 0, seed = 1;
  for (uint64_t round = 0; round < rounds; ++round) {
    const pid_t child = fork();
    require(child >= 0, "fork");
    seed += round;
    for (int i = 0; i < 64; ++i) {
      const uint64_t word = next_random(&seed) % (file.bytes / 8 - kWords) + kWords;
      wrong += words[word] != word;
    }
    if (child == 0) {
      words[0] += 1;
      _exit(wrong != 0);
    }
    wrong += wrong_of_child(child);
    wrong += words[0] != round + 1;
  }
  return wrong;
}

static uint64_t wrong_when_shortened(struct file file) {
  volatile uint64_t* words = map_words(file, PROT_READ, MAP_SHARED);
  uint64_t wrong = wrong_in_scan(words, file.bytes, 1000);
  require(ftruncate(file.fd, (off_t)(file.bytes / 2)) == 0, "ftruncate");
  for (int i = 0; i < 4; ++i) wrong += wrong_in_scan(words, file.bytes / 2, 1000);
  printf("before the end: wrong %llu\n", (unsigned long long)wrong);
  fflush(stdout);
  return wrong + words[file.bytes / 8 - 1];
}

static uint64_t wrong_while_held(struct file file) {
  volatile uint64_t* words = map_words(file, PROT_READ, MAP_SHARED);
  printf("holding\n");
  fflush(stdout);
  uint64_t wrong = 0;
  struct pollfd input = {0, POLLIN, 0};
  do {
    wrong += wrong_in_scan(words, file.bytes, 400);
  } while (poll(&input, 1, 0) == 0);
  return wrong;
}

static uint64_t wrong_in_small(struct file file, long count) {
  const uint64_t bytes = kMib / 2;
  uint64_t wrong = 0;
  for (long i = 0; i < count; ++i) {
    const uint64_t at = (uint64_t)i * bytes % file.bytes;
    void* words = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file.fd, (off_t)at);
    require(words != MAP_FAILED, "mmap");
    wrong += wrong_at(words, at / 8, bytes);
  }
  return wrong;
}

static uint64_t wrong_in_shards(const char* folder, long count) {
  static volatile uint64_t* shards[1 << 16];
  char path[4096];
  struct file file = {-1, 0};
  for (long i = 0; i < count; ++i) {
    snprintf(path, sizeof path, "%s/%ld", folder, i);
    file = open_file(path, O_RDONLY);
    shards[i] = map_words(file, PROT_READ, MAP_SHARED);
    close(file.fd);
  }
  uint64_t wrong = 0;
  for (int pass = 0; pass < 2; ++pass) {
    for (long i = 0; i < count; ++i) wrong += wrong_in_scan(shards[i], file.bytes, 400);
  }
  return wrong;
}

static uint64_t wrong_after_passing(const char* folder, long count, const char* last) {
  char path[4096];
  for (long i = 0; i < count; ++i) {
    snprintf(path, sizeof path, "%s/passing%ld", folder, i);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    require(fd >= 0 && ftruncate(fd, 64 << 10) == 0, path);
    void* at = mmap(NULL, 64 << 10, PROT_READ, MAP_SHARED, fd, 0);
    require(at != MAP_FAILED && munmap(at, 64 << 10) == 0, "mmap");
    require(unlink(path) == 0 && close(fd) == 0, "unlink");
  }
  const struct file file = open_file(last, O_RDONLY);
  return wrong_in_scan(map_words(file, PROT_READ, MAP_SHARED), file.bytes, 400);
}

static uint64_t wrong_in_crowd(struct file file, long count) {
  int ready[2], go[2];
  require(pipe(ready) == 0 && pipe(go) == 0, "pipe");
  for (long i = 0; i < count; ++i) {
    const pid_t child = fork();
    require(child >= 0, "fork");
    if (child != 0) continue;
    close(go[1]);
    volatile uint64_t* words = map_words(file, PROT_READ, MAP_SHARED);
    char byte = 0;
    require(write(ready[1], &byte, 1) == 1, "write");
    // Until all are there.
    while (read(go[0], &byte, 1) > 0) {
    }
    const uint64_t word = (uint64_t)i * kWords % (file.bytes / 8);
    _exit(words[word] != word);
  }
  char byte;
  for (long i = 0; i < count; ++i) require(read(ready[0], &byte, 1) == 1, "read");
  close(go[1]);
  uint64_t wrong = 0;
  for (long i = 0; i < count; ++i) {
    int status = 0;
    require(wait(&status) > 0, "wait");
    wrong += status != 0;
  }
  return wrong;
}

// Says how much of it is cached at the end, too: nobody else can find it.
static uint64_t wrong_when_unlinked(const char* path, struct file file, int keep_open) {
  require(unlink(path) == 0, "unlink");
  volatile uint64_t* words = map_words(file, PROT_READ | PROT_WRITE, MAP_SHARED);
  if (!keep_open) close(file.fd);
  uint64_t wrong = 0, most = 0;
  for (uint64_t at = 0; at < 2 * file.bytes; at += kMib) {
    const uint64_t part = at % file.bytes;
    for (uint64_t word = part / 8; word < (part + kMib) / 8; ++word) wrong += words[word] != word;
    words[part / 8] = part / 8;  // dirty
    sleep_ns(kMib * 1000u / 300);
    const uint64_t cached = cached_of(words, file.bytes);
    if (cached > most) most = cached;
    wait_for_guard(words, file.bytes);
  }
  printf("most %llu\n", (unsigned long long)most);
  return wrong;
}

static uint64_t wrong_with_heap(struct file file, long mib) {
  volatile char* own = malloc((size_t)mib * kMib);
  require(own != NULL, "malloc");
  for (long i = 0; i < mib * kMib; i += kPage) own[i] = 1;
  return wrong_in_scan(map_words(file, PROT_READ, MAP_SHARED), file.bytes, 100) + (own[0] != 1);
}

static int say_wrong(uint64_t wrong) {
  printf("wrong %llu\n", (unsigned long long)wrong);
  return wrong != 0;
}

int main(int count, char** words) {
  if (count > 1 && strncmp(words[count - 1], "within=", 7) == 0) {
    bound = strtoull(words[--count] + 7, NULL, 10) * kMib;
  }
  require(count >= 3, "usage");
  const char* what = words[1];
  const char* path = words[2];
  const long first = count > 3 ? atol(words[3]) : 0, second = count > 4 ? atol(words[4]) : 0;
#define IS(name) (strcmp(what, name) == 0)
  if (IS("sleep")) return sleep_ns((uint64_t)atol(path) * 1000000u), 0;
  if (IS("say")) return puts(path) < 0;
  if (IS("exit")) return atoi(path);
  if (IS("die")) return raise(atoi(path)), pause();
  if (IS("shards")) return say_wrong(wrong_in_shards(path, first));
  if (IS("passing") && count > 4) return say_wrong(wrong_after_passing(path, first, words[4]));
  const int writes = IS("unlinked") || IS("mix") || IS("forks") || IS("shorten");
  const struct file file = open_file(path, writes ? O_RDWR : O_RDONLY);
  if (IS("scan")) {
    volatile uint64_t* at = map_words(file, PROT_READ, MAP_SHARED);
    return say_wrong(wrong_in_scan(at, file.bytes, (uint64_t)first));
  }
  if (IS("crops")) return say_wrong(wrong_in_crops(file, first, (uint64_t)second));
  if (IS("tree") && count > 5) {
    const struct file other = open_file(words[3], O_RDONLY);
    return say_wrong(wrong_in_tree(file, other, second, (uint64_t)atol(words[5])));
  }
  if (IS("mix")) return say_wrong(wrong_in_mix(file, (uint64_t)first, (uint64_t)second));
  if (IS("remap")) return say_wrong(wrong_in_remap(file, (uint64_t)first, (uint64_t)second));
  if (IS("forks")) return say_wrong(wrong_in_forks(file, (uint64_t)first));
  if (IS("shorten")) return say_wrong(wrong_when_shortened(file));
  if (IS("hold")) return say_wrong(wrong_while_held(file));
  if (IS("heap")) return say_wrong(wrong_with_heap(file, first));
  if (IS("crowd")) return say_wrong(wrong_in_crowd(file, first));
  if (IS("unlinked") && count > 3) {
    return say_wrong(wrong_when_unlinked(path, file, strcmp(words[3], "open") == 0));
  }
  if (IS("small")) return say_wrong(wrong_in_small(file, first));
  fprintf(stderr, "what is \"%s\"?\n", what);
  return 98;
}
