#include "evenkeel/mark.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "meter/marks.h"

namespace evenkeel {
namespace {

constexpr char kNoFile[] = "";

// The file to write to, or kNoFile. Uses no lock, because a fork could leave it locked. Several
// threads may call it at once; all use the first answer. The path is never freed.
const char* marks_path() noexcept {
  static std::atomic<const char*> path{nullptr};
  const char* known = path.load(std::memory_order_acquire);
  if (known) return known;
  // In a setuid program, the user must not choose the file that it writes to.
  const char* given = ::secure_getenv(kMarksVariable);
  char* copy = given && *given ? ::strdup(given) : nullptr;
  if (path.compare_exchange_strong(known, copy ? copy : kNoFile)) {
    return copy ? copy : kNoFile;
  }
  std::free(copy);
  return known;
}

// A line of the file: "<nanoseconds> <pid> <text>\n".
struct Line {
  explicit Line(std::string_view text) noexcept {
    timespec now;
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    number(static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec));
    number(static_cast<std::uint64_t>(::getpid()));
    const MarkText clean = clean_mark_text(text);
    std::memcpy(bytes + size, clean.bytes.data(), clean.size);
    size += clean.size;
    bytes[size++] = '\n';
  }
  void number(std::uint64_t value) noexcept {
    size = static_cast<std::size_t>(std::to_chars(bytes + size, bytes + sizeof bytes, value).ptr -
                                    bytes);
    bytes[size++] = ' ';
  }
  char bytes[kMostMarkText + 64];
  std::size_t size = 0;
};

// Only regular files: a pipe could block the program. A write beyond RLIMIT_FSIZE would raise
// SIGXFSZ.
bool takes_more(int fd, std::size_t bytes) noexcept {
  struct stat status;
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const std::uint64_t size = static_cast<std::uint64_t>(status.st_size) + bytes;
  rlimit limit;
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
  return size <= kMostMarkFile && size <= limit.rlim_cur;
}

void append(const char* path, const Line& line) noexcept {
  const int fd = ::open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return;
  if (takes_more(fd, line.size)) {
    // One write is one line, even if others write at the same time. If it fails, the mark is lost.
    [[maybe_unused]] const ssize_t put = ::write(fd, line.bytes, line.size);
  }
  ::close(fd);
}

}  // namespace

void mark(std::string_view text) noexcept {
  const char* path = marks_path();
  if (*path == '\0') return;
  const int before = errno;
  append(path, Line(text));
  errno = before;
}

}  // namespace evenkeel
