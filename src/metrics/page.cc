#include "metrics/page.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/mutex.h"

namespace evenkeel {
namespace {

constexpr std::size_t kWords = sizeof(PageData) / sizeof(std::uint64_t);
using PageWords = std::array<std::uint64_t, kWords>;
static_assert(sizeof(PageWords) == sizeof(PageData));

// Removes the file when the process exits normally. After a crash, the next process that creates a
// page removes it, or `evenkeel top` does. Never destroyed: global objects of the program may be
// closed after it has removed the file, and publish that.
class PageRemover {
 public:
  static PageRemover& get() {
    static PageRemover* const remover = [] {
      auto* const made = new PageRemover;
      std::atexit([] { get().remove(); });
      return made;
    }();
    return *remover;
  }
  void remember(std::string path) {
    const MutexLock lock(mutex_);
    path_ = std::move(path);
    pid_ = ::getpid();
  }
  bool process_exits() {
    const MutexLock lock(mutex_);
    return process_exits_;
  }

 private:
  void remove() {
    const MutexLock lock(mutex_);
    process_exits_ = true;
    if (!path_.empty() && pid_ == ::getpid()) ::unlink(path_.c_str());
  }

  Mutex mutex_;
  std::string path_ GUARDED_BY(mutex_);
  pid_t pid_ GUARDED_BY(mutex_) = 0;
  bool process_exits_ GUARDED_BY(mutex_) = false;
};

bool is_turned_off() {
  const char* const asked = std::getenv("EVENKEEL_TOP");
  return asked && std::string_view(asked) == "off";
}

// Writes the page in one call. Writing to a mapping could raise SIGBUS on a full disk or an
// unreachable server. Writing beyond the limit of `ulimit -f` would raise SIGXFSZ.
bool write_whole(int fd, const PageData& data) {
  rlimit most = {};
  if (::getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur < sizeof(data)) return false;
  return ::pwrite(fd, &data, sizeof(data), 0) == sizeof(data);
}

// Creates a file in `folder` and locks it. It gets its final name only after that, so that no one
// takes it for the page of a process that has died. Returns -1 if that fails.
int make_page_file(int folder, std::string& name) {
  name = std::to_string(::getpid());
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  name += "-" + std::to_string(now.tv_sec) + "." + std::to_string(now.tv_nsec);
  const std::string unfinished = "." + name;
  PageFile file(::openat(folder, unfinished.c_str(),
                         O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return -1;
  const bool made = write_whole(file.get(), PageData()) && lock_page(file.get()) &&
                    ::renameat(folder, unfinished.c_str(), folder, name.c_str()) == 0;
  if (!made) {
    ::unlinkat(folder, unfinished.c_str(), 0);
    return -1;
  }
  return file.keep();  // closing it would end the lock
}

}  // namespace

std::uint64_t page_check(const PageData& data) {
  const auto words = std::bit_cast<PageWords>(data);
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a, of words
  for (std::size_t i = 0; i + 1 < kWords; ++i) hash = (hash ^ words[i]) * 1099511628211U;
  return hash;
}

Page::Page(int fd, const PageIdentity& identity) : fd_(fd), identity_(identity) {
  next_.magic = kPageMagic;
  next_.size = sizeof(PageData);
  next_.pid = static_cast<std::uint64_t>(::getpid());
  std::strncpy(next_.name, ::program_invocation_short_name, sizeof(next_.name) - 1);
}

std::optional<Page> Page::create() {
  if (is_turned_off() || PageRemover::get().process_exits()) return {};
  const uid_t user = ::geteuid();
  for (const PagePlace& place : page_places(user)) {
    const PageFile folder = open_page_folder(place, true);
    if (!folder) continue;
    locked_pages(folder.get(), user);  // removes pages of processes that have died
    std::string name;
    const int fd = make_page_file(folder.get(), name);
    const auto identity = page_identity(fd);
    if (!identity) continue;
    PageRemover::get().remember(place.path() + "/" + name);
    return Page(fd, *identity);
  }
  return {};
}

void Page::close() {
  const auto now = page_identity(fd_);
  if (now && now->same_file(identity_)) ::close(fd_);
  fd_ = -1;
  forget_own_page();
}

PageState Page::write(const ProcessFigures& figures) {
  const ArrayStats& reads = figures.work.reads;
  next_.arrays = figures.arrays;
  next_.loaders = figures.loaders;
  next_.budgets = figures.budgets;
  next_.limit = figures.limit;
  next_.in_use = figures.in_use;
  next_.cached = figures.cached;
  next_.peak = figures.peak;
  next_.cache_hits = reads.cache_hits;
  next_.cache_misses = reads.cache_misses;
  next_.cache_bytes = reads.cache_bytes;
  next_.bytes_from_cache = reads.bytes_from_cache;
  next_.bytes_from_mapping = reads.bytes_from_mapping;
  next_.bytes_from_page_cache = reads.bytes_from_page_cache;
  next_.bytes_from_disk = reads.bytes_from_disk;
  next_.bytes_from_network = reads.bytes_from_network;
  next_.bytes_from_disk_cache = reads.bytes_from_disk_cache;
  next_.requests = reads.requests;
  next_.in_flight = reads.in_flight;
  next_.wait_ns = reads.wait_ns;
  next_.retries = reads.retries;
  next_.hedges = reads.hedges;
  next_.batches = figures.work.batches;
  next_.batch_wait_ns = figures.work.batch_wait_ns;
  ++next_.sequence;
  next_.check = page_check(next_);
  // A program that closes all descriptors, as daemons do, may have reused this one for another
  // file.
  const auto now = page_identity(fd_);
  if (!now || !now->same_file(identity_) || !now->has_name) return PageState::kLost;
  return write_whole(fd_, next_) ? PageState::kWritten : PageState::kFailed;
}

std::optional<PageData> parse_page(const void* bytes, std::size_t length) {
  PageWords words;
  if (length != sizeof(words)) return {};
  std::memcpy(words.data(), bytes, sizeof(words));
  auto data = std::bit_cast<PageData>(words);
  if (data.magic != kPageMagic || data.size != sizeof(data)) return {};
  if (data.check != page_check(data)) return {};
  data.name[sizeof(data.name) - 1] = '\0';
  return data;
}

// A page that is being written is read again a few times. Nearly all reads find a whole page.
std::vector<SeenPage> read_pages(const std::vector<PagePlace>& places) {
  constexpr int kTries = 16;
  std::vector<SeenPage> seen;
  std::vector<PageIdentity> folders;  // two paths may lead to the same folder
  for (const PagePlace& place : places) {
    const PageFile folder = open_page_folder(place, false);
    const auto identity = page_identity(folder.get());
    const auto is_this = [&](const PageIdentity& one) { return one.same_file(*identity); };
    if (!identity || std::any_of(folders.begin(), folders.end(), is_this)) continue;
    folders.push_back(*identity);
    for (const LockedPage& page : locked_pages(folder.get(), place.user)) {
      std::optional<PageData> data;
      for (int i = 0; i < kTries && !data; ++i) {
        std::array<std::byte, sizeof(PageData) + 1> bytes;  // one more: longer files are refused
        const ssize_t length = ::pread(page.file.get(), bytes.data(), bytes.size(), 0);
        if (length > 0) data = parse_page(bytes.data(), static_cast<std::size_t>(length));
      }
      if (data) seen.push_back({place.path() + "/" + page.name, place.user, page.pid, *data});
    }
  }
  return seen;
}

}  // namespace evenkeel
