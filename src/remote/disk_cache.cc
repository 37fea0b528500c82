#include "remote/disk_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "base/checked.h"
#include "base/hash.h"
#include "base/visible.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "remote/sha256.h"

namespace evenkeel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBlockMagic("EKBLOCK2", 8);
constexpr std::size_t kKeyLength = 32;
constexpr std::int64_t kTouchEvery = 60;  // seconds; the time of the last use is this exact
// At most this many blocks are removed at a time. The list of them takes about 3 MiB.
constexpr std::size_t kMostRemoved = 16384;

// The first bytes of a block's file. `self` is the checksum of the fields before it.
struct BlockHeader {
  char magic[8];
  char key[kKeyLength];
  std::uint64_t block, length, data, self;

  std::uint64_t checksum() const {
    return xxh3(std::as_bytes(std::span(this, 1)).first(offsetof(BlockHeader, self)));
  }
};

std::uint64_t size_on_disk(std::uint64_t bytes) {
  return DiskCache::kHeader + round_up(bytes, DiskCache::kHeader);
}

// Whether a file (header and data) is a block with valid checksums. Sets `header`.
bool is_whole(std::span<const std::byte> file, BlockHeader& header) {
  if (file.size() < DiskCache::kHeader) return false;
  std::memcpy(&header, file.data(), sizeof header);
  return std::string_view(header.magic, 8) == kBlockMagic && header.self == header.checksum() &&
         header.length <= DiskCache::kBlock && header.length <= file.size() - DiskCache::kHeader &&
         header.data == xxh3(file.subspan(DiskCache::kHeader, header.length));
}

// Opens with O_DIRECT if the filesystem supports it, so that reads bypass the page cache.
Fd open_block(int folder, const char* path, int flags, bool& direct) {
  Fd fd(::openat(folder, path, flags | O_CLOEXEC | O_DIRECT, 0666));
  direct = static_cast<bool>(fd);
  if (!fd && (errno == EINVAL || errno == EOPNOTSUPP)) {
    fd = Fd(::openat(folder, path, (flags & ~O_EXCL) | O_CLOEXEC, 0666));
  }
  return fd;
}

std::size_t read_whole(int fd, std::byte* out, std::size_t room) {
  std::size_t done = 0;
  while (done < room) {
    const ssize_t got = sys::pread(fd, out + done, room - done, done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
    if (done % DiskCache::kHeader != 0) break;  // the end of the file
  }
  (void)sys::fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  return done;
}

bool write_whole(int fd, const std::byte* data, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t put = ::pwrite(fd, data + done, size - done, static_cast<off_t>(done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    done += static_cast<std::size_t>(put);
  }
  return true;
}

class FileLock {
 public:
  explicit FileLock(int fd) : fd_(fd) {
    while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FileLock() { ::flock(fd_, LOCK_UN); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  const int fd_;
};

std::uint64_t read_usage(int fd) {
  std::uint64_t bytes = 0;
  return ::pread(fd, &bytes, sizeof bytes, 0) == sizeof bytes ? bytes : UINT64_MAX;
}

void write_usage(int fd, std::uint64_t bytes) { (void)!::pwrite(fd, &bytes, sizeof bytes, 0); }

// Call with the file locked.
void give_back(int usage, std::uint64_t bytes) {
  const std::uint64_t used = read_usage(usage);
  if (used != UINT64_MAX) write_usage(usage, used - std::min(used, bytes));
}

std::string made_root(const std::string& folder) {
  std::string root = DiskCache::root_of(folder);
  std::error_code failure;
  fs::create_directories(fs::path(root) / "unfinished", failure);
  if (failure) throw Error::system("cache", failure.value(), "cannot create the folder").in(root);
  return root;
}

// Whether the process that wrote an unfinished file has died. While it lives, it holds a lock on
// the file.
bool is_abandoned(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
}

template <class Take>
void for_each_block(const std::string& root, Take take) {
  std::error_code failure;
  for (fs::recursive_directory_iterator it(root, failure), end; !failure && it != end;
       it.increment(failure)) {
    struct stat status;
    std::string path = it->path().string();
    if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    const bool unfinished = it->path().parent_path().filename() == "unfinished";
    if (!unfinished && it.depth() == 0) continue;  // `usage`
    take(CachedBlock{std::move(path), static_cast<std::uint64_t>(status.st_size),
                     status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec, unfinished});
  }
}

}  // namespace

DiskCacheSpec parse_disk_cache(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const auto wrong = [&](const std::string& what) {
    return Error(ErrorKind::kInvalid, "cache", "\"" + text + "\" " + what)
        .hint("write a folder and how much it may hold: /nvme/ek:200GiB");
  };
  if (colon == text.npos || colon == 0) throw wrong("is not FOLDER:SIZE");
  DiskCacheSpec spec{text.substr(0, colon), 0};
  try {
    spec.limit = parse_size(text.substr(colon + 1));
  } catch (const Error&) {
    throw wrong("does not end with a size");
  }
  constexpr std::uint64_t kLeast = 16 << 20;
  if (spec.limit < kLeast) throw wrong("is less than 16 MiB");
  return spec;
}

std::string DiskCache::root_of(const std::string& folder) {
  return (fs::path(folder) / "evenkeel-blocks-1").string();
}

DiskCache::DiskCache(const std::string& folder, std::uint64_t limit)
    : root_(made_root(folder)),
      root_fd_(::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
      limit_(limit),
      usage_([this] {
        auto usage = std::make_unique<Usage>();
        const MutexLock lock(usage->mutex);
        usage->fd = Fd(::open((root_ + "/usage").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
        return usage;
      }) {
  if (!root_fd_) throw Error::system("cache", errno, "cannot open the folder").in(root_);
  Usage& usage = usage_.get();
  const MutexLock lock(usage.mutex);
  if (!usage.fd) throw Error::system("cache", errno, "cannot write").in(root_ + "/usage");
  const sys::DirectAlignment asked = sys::direct_alignment(usage.fd.get());
  if (asked.offset == 0) return;  // the kernel does not say
  alignment_ = std::clamp<std::uint64_t>(std::max(asked.offset, asked.memory), 512, kHeader);
}

std::string DiskCache::key_of(std::string_view identity, std::uint64_t size) {
  const std::string all = std::string(identity) + '\0' + std::to_string(size);
  return hex_of(sha256(all)).substr(0, kKeyLength);
}

std::string DiskCache::name_of(const std::string& key, std::uint64_t block) {
  std::string name;
  name.reserve(key.size() + 32);
  name.append(key, 0, 2).append("/").append(key).append("-");
  return name.append(std::to_string(block));
}

Fd DiskCache::open(const std::string& key, std::uint64_t block, bool& direct) const {
  return open_block(root_fd_.get(), name_of(key, block).c_str(), O_RDONLY, direct);
}

std::uint64_t DiskCache::check(const std::string& key, std::uint64_t block,
                               std::span<const std::byte> file) {
  BlockHeader header;
  if (is_whole(file, header) && header.block == block &&
      std::string_view(header.key, kKeyLength) == key) {
    return header.length;
  }
  Usage& usage = usage_.get();
  const MutexLock lock(usage.mutex);
  const FileLock others(usage.fd.get());
  // The block is damaged. Remove it, so that it is fetched again.
  if (::unlink(path_of(key, block).c_str()) == 0) give_back(usage.fd.get(), file.size());
  return 0;
}

void DiskCache::touch(int fd) {
  struct stat status;
  if (::fstat(fd, &status) != 0 || status.st_mtim.tv_sec + kTouchEvery >= std::time(nullptr))
    return;
  (void)::futimens(fd, nullptr);
}

std::uint64_t DiskCache::read(const std::string& key, std::uint64_t block, std::byte* out) {
  bool direct = true;
  const Fd fd = open(key, block, direct);
  if (!fd) return 0;
  const std::size_t got = read_whole(fd.get(), out, kHeader + kBlock);
  const std::uint64_t length = check(key, block, {out, got});
  if (length > 0) touch(fd.get());
  return length;
}

// Removes the least recently used blocks until `wanted` bytes fit. Returns the bytes then in use.
// It counts all files, so that errors in the count, left by crashes, do not last. Only the oldest
// kMostRemoved blocks are kept in memory meanwhile.
std::uint64_t DiskCache::make_room(std::uint64_t wanted) {
  const auto older = [](const CachedBlock& a, const CachedBlock& b) {
    return a.used_ns < b.used_ns;
  };
  std::uint64_t used = 0;
  std::vector<CachedBlock> oldest;  // a heap, the newest of them on top
  for_each_block(root_, [&](CachedBlock&& block) {
    if (block.unfinished) {
      if (is_abandoned(block.path)) {
        ::unlink(block.path.c_str());
      } else {
        used += size_on_disk(kBlock);
      }
      return;
    }
    used += block.bytes;
    if (oldest.size() == kMostRemoved) {
      if (!older(block, oldest.front())) return;
      std::ranges::pop_heap(oldest, older);
      oldest.pop_back();
    }
    oldest.push_back(std::move(block));
    std::ranges::push_heap(oldest, older);
  });
  // Remove more than needed, so that the next blocks need no such scan.
  const std::uint64_t goal = limit_ - std::min(limit_, limit_ / 16 + wanted);
  if (used <= limit_ && wanted <= limit_ - used) return used;
  std::ranges::sort_heap(oldest, older);
  for (const CachedBlock& block : oldest) {
    if (used <= goal) break;
    if (::unlink(block.path.c_str()) == 0) used -= std::min(used, block.bytes);
  }
  return used;
}

Fd DiskCache::reserve(std::uint64_t bytes, std::string& name) {
  Usage& usage = usage_.get();
  const MutexLock lock(usage.mutex);
  if (!usage.fd) return {};  // a child of fork may have failed to open it
  const FileLock others(usage.fd.get());
  std::uint64_t used = read_usage(usage.fd.get());
  if (used > limit_ || bytes > limit_ - used) used = make_room(bytes);
  if (used > limit_ || bytes > limit_ - used) {
    write_usage(usage.fd.get(), used);
    return {};
  }
  static std::atomic<std::uint64_t> serial = 0;
  name = root_ + "/unfinished/" + std::to_string(::getpid()) + "-" + std::to_string(serial++) +
         "-" + std::to_string(sys::monotonic_ns());
  bool direct = true;
  Fd fd = open_block(AT_FDCWD, name.c_str(), O_RDWR | O_CREAT | O_EXCL, direct);
  if (!fd) return {};
  ::flock(fd.get(), LOCK_EX);  // held while the writer lives; see is_abandoned
  write_usage(usage.fd.get(), used + bytes);
  return fd;
}

bool DiskCache::store(const std::string& key, std::uint64_t block, std::byte* room,
                      std::uint64_t bytes) {
  const std::uint64_t whole = size_on_disk(bytes);
  std::string name;
  const Fd fd = reserve(whole, name);
  if (!fd) return false;
  std::memset(room, 0, kHeader);
  std::memset(room + kHeader + bytes, 0, whole - kHeader - bytes);
  BlockHeader header{};
  std::memcpy(header.magic, kBlockMagic.data(), kBlockMagic.size());
  std::memcpy(header.key, key.data(), kKeyLength);
  header.block = block;
  header.length = bytes;
  header.data = xxh3({room + kHeader, bytes});
  header.self = header.checksum();
  std::memcpy(room, &header, sizeof header);
  const std::string path = path_of(key, block);
  bool stored = write_whole(fd.get(), room, whole);
  if (stored) (void)sys::fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  // Others count blocks under this lock. So they never see the block under both names or none.
  Usage& usage = usage_.get();
  const MutexLock lock(usage.mutex);
  const FileLock others(usage.fd.get());
  if (stored) {
    // A link, not a rename: if another process was first, its block stays.
    stored = ::link(name.c_str(), path.c_str()) == 0;
    if (!stored && errno == ENOENT) {
      ::mkdir(path.substr(0, path.rfind('/')).c_str(), 0777);
      stored = ::link(name.c_str(), path.c_str()) == 0;
    }
  }
  ::unlink(name.c_str());
  if (!stored) give_back(usage.fd.get(), whole);
  return stored;
}

std::vector<CachedBlock> DiskCache::list(const std::string& root) {
  std::vector<CachedBlock> blocks;
  for_each_block(root, [&](CachedBlock&& block) { blocks.push_back(std::move(block)); });
  return blocks;
}

bool DiskCache::verify(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::vector<std::byte> file(kHeader + kBlock);
  const std::size_t got = fd ? read_whole(fd.get(), file.data(), file.size()) : 0;
  BlockHeader header;
  return is_whole({file.data(), got}, header);
}

std::uint64_t DiskCache::clear(const std::string& root) {
  const Fd usage(::open((root + "/usage").c_str(), O_RDWR | O_CLOEXEC));
  if (!usage) return 0;
  const FileLock others(usage.get());
  std::uint64_t freed = 0;
  for (const CachedBlock& block : list(root)) {
    if (block.unfinished && !is_abandoned(block.path)) continue;
    if (::unlink(block.path.c_str()) == 0) freed += block.bytes;
  }
  const std::uint64_t used = read_usage(usage.get());
  write_usage(usage.get(), used == UINT64_MAX ? 0 : used - std::min(used, freed));
  return freed;
}

}  // namespace evenkeel
