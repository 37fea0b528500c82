// A program whose memory is known: it does what its arguments say, one after the other.
//
//   anon MIB       takes private memory          free          gives the last back
//   shared MIB     takes shared memory
//   map PATH       maps a file                   touch MIB     touches that much from its beginning
//   read PATH MIB  reads it, keeps it open       open PATH     keeps it open
//   child MIB      starts one that holds this    end           ends the last
//   grow MIB N     MIB more, N times, 10 ms apart
//   cached PATH    marks "PATH cached BYTES", as mincore sees it
//   mark TEXT      to whoever profiles           marks N       1, 2, ... N
//   say TEXT       on stdout                     sleep MS
//   hold NAME MS   marks "NAME begin", sleeps, marks "NAME end"
//   await SIGNAL   waits for it, says how often it came in the half second after the first
//   exit CODE      die SIGNAL
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kMib = 1 << 20;

struct Piece {
  char* data;
  std::size_t size;
};
std::vector<Piece> pieces;
std::vector<pid_t> children;
Piece mapped;

void require(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::_Exit(99);
}

void sleep_ms(long ms) {
  timespec rest{ms / 1000, ms % 1000 * 1'000'000};
  while (::nanosleep(&rest, &rest) != 0) {
  }
}

Piece take(std::size_t mib, int flags) {
  const std::size_t size = mib * kMib;
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  require(data != MAP_FAILED, "mmap");
  ::madvise(data, size, MADV_NOHUGEPAGE);  // a page is a fault
  const Piece piece{static_cast<char*>(data), size};
  for (std::size_t at = 0; at < size; at += 4096) piece.data[at] = 1;
  return piece;
}

void map_file(const char* path) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  require(fd >= 0, path);
  const auto size = static_cast<std::size_t>(::lseek(fd, 0, SEEK_END));
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  require(data != MAP_FAILED, path);
  ::close(fd);
  mapped = {static_cast<char*>(data), size};
}

void touch(std::size_t mib) {
  volatile char sum = 0;
  for (std::size_t at = 0; at < mib * kMib; at += 4096) sum = sum + mapped.data[at];
}

void read_file(const char* path, std::size_t mib) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  require(fd >= 0, path);
  std::vector<char> buffer(kMib);
  for (std::size_t i = 0; i < mib; ++i) {
    require(::read(fd, buffer.data(), kMib) == static_cast<ssize_t>(kMib), path);
  }
}

void start_child(std::size_t mib) {
  int ready[2];
  require(::pipe(ready) == 0, "pipe");
  const pid_t child = ::fork();
  require(child >= 0, "fork");
  if (child == 0) {
    take(mib, MAP_PRIVATE);
    require(::write(ready[1], "x", 1) == 1, "write");
    for (;;) ::pause();
  }
  char word;
  require(::read(ready[0], &word, 1) == 1, "child");
  ::close(ready[0]);
  ::close(ready[1]);
  children.push_back(child);
}

void end_child() {
  ::kill(children.back(), SIGKILL);
  ::waitpid(children.back(), nullptr, 0);
  children.pop_back();
}

void mark(const std::string& text) {
  const char* path = std::getenv("EVENKEEL_MARKS");
  if (!path) return;
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::string line = std::to_string(now.tv_sec * 1'000'000'000LL + now.tv_nsec) + " " +
                           std::to_string(::getpid()) + " " + text + "\n";
  const int fd = ::open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  require(fd >= 0, path);
  require(::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()), path);
  ::close(fd);
}

void count_cached(const std::string& path) {
  map_file(path.c_str());
  std::vector<unsigned char> resident((mapped.size + 4095) / 4096);
  require(::mincore(mapped.data, mapped.size, resident.data()) == 0, "mincore");
  ::munmap(mapped.data, mapped.size);
  std::size_t pages = 0;
  for (const unsigned char page : resident) pages += page & 1;
  mark(path + " cached " + std::to_string(pages * 4096));
}

void say(const std::string& text) {
  const std::string line = text + "\n";
  require(::write(STDOUT_FILENO, line.data(), line.size()) >= 0, "stdout");
}

void await(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  say("waiting");
  siginfo_t info;
  require(::sigwaitinfo(&set, &info) == signal, "sigwaitinfo");
  int count = 1;
  const timespec half_a_second{0, 500'000'000};
  while (::sigtimedwait(&set, &info, &half_a_second) == signal) ++count;
  say("signal " + std::to_string(signal) + " came " + std::to_string(count));
}

}  // namespace

int main(int, char** words) {
  const auto next = [&] {
    require(*(words + 1) != nullptr, "a word is missing");
    return *++words;
  };
  const auto number = [&] { return std::atol(next()); };
  const auto size = [&] { return static_cast<std::size_t>(number()); };
  while (words[1]) {
    const std::string verb = next();
    if (verb == "anon") {
      pieces.push_back(take(size(), MAP_PRIVATE));
    } else if (verb == "free") {
      ::munmap(pieces.back().data, pieces.back().size);
      pieces.pop_back();
    } else if (verb == "shared") {
      take(size(), MAP_SHARED);
    } else if (verb == "map") {
      map_file(next());
    } else if (verb == "touch") {
      touch(size());
    } else if (verb == "read") {
      const char* path = next();
      read_file(path, size());
    } else if (verb == "open") {
      require(::open(next(), O_RDONLY | O_CLOEXEC) >= 0, "open");
    } else if (verb == "child") {
      start_child(size());
    } else if (verb == "end") {
      end_child();
    } else if (verb == "grow") {
      const std::size_t mib = size();
      for (long i = number(); i > 0; --i) {
        take(mib, MAP_PRIVATE);
        sleep_ms(10);
      }
    } else if (verb == "cached") {
      count_cached(next());
    } else if (verb == "mark") {
      mark(next());
    } else if (verb == "marks") {
      const long count = number();
      for (long i = 1; i <= count; ++i) mark(std::to_string(i));
    } else if (verb == "say") {
      say(next());
    } else if (verb == "sleep") {
      sleep_ms(number());
    } else if (verb == "hold") {
      const std::string name = next();
      mark(name + " begin");
      sleep_ms(number());
      mark(name + " end");
    } else if (verb == "await") {
      await(static_cast<int>(number()));
    } else if (verb == "exit") {
      return static_cast<int>(number());
    } else if (verb == "die") {
      ::raise(static_cast<int>(number()));
    } else {
      std::fprintf(stderr, "what is \"%s\"?\n", verb.c_str());
      return 98;
    }
  }
  return 0;
}
