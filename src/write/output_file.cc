#include "write/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "base/checked.h"
#include "base/text_file.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr char kFresh[] = ".new";  // a file that is to replace another

constexpr std::string_view kStateMagic = "evenkeel checkpoint 1";
constexpr int kShortWrites = 64;  // in a row, before giving up

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// If the path is a symbolic link, the file it points to is replaced, not the link.
std::string resolved(const std::string& path) {
  std::string name = path;
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode)) {
    if (char* real = ::realpath(path.c_str(), nullptr)) {
      name = real;
      ::free(real);  // NOLINT: allocated by realpath
    }
  }
  if (::stat(name.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw Error(ErrorKind::kInvalid, "create",
                S_ISDIR(status.st_mode) ? "this is a folder" : "this is not a regular file")
        .in(path)
        .hint("name a file that does not exist, or one to replace");
  }
  return name;
}

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (c == '\\') {
      line += "\\\\";
    } else if (c == '\n') {
      line += "\\n";
    } else {
      line += c;
    }
  }
  return line;
}

std::string from_line(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\' || i + 1 == line.size()) {
      text += line[i];
    } else {
      text += line[++i] == 'n' ? '\n' : line[i];
    }
  }
  return text;
}

// Makes a rename or removal survive a crash.
void sync_folder_of(const std::string& path) {
  const std::string folder = folder_of(path);
  const Fd fd(sys::open(folder.c_str(), O_RDONLY | O_DIRECTORY));
  // Some filesystems do not support fsync of folders, so only EIO is an error.
  if (fd && sys::fsync(fd.get()) != 0 && errno == EIO) {
    throw Error::system("write", EIO, "the disk failed to store the change of the folder")
        .in(folder);
  }
}

// Whether the path still names the open file. Another process may have removed or renamed it.
bool still_named(int fd, const std::string& path) {
  struct stat open {
  }, named{};
  return sys::fstat(fd, &open) != 0 || (::lstat(path.c_str(), &named) == 0 &&
                                        open.st_dev == named.st_dev && open.st_ino == named.st_ino);
}

std::optional<Checkpoint> parse_checkpoint(std::string_view text) {
  std::string_view magic, size, kind, numbers, state, end;
  if (!take_line(text, magic) || magic != kStateMagic || !take_line(text, size) ||
      !take_line(text, kind) || !take_line(text, numbers) || !take_line(text, state) ||
      !take_line(text, end) || end != "end") {
    return std::nullopt;
  }
  const auto bytes = leading_number(size);
  if (!bytes) return std::nullopt;
  return Checkpoint{*bytes, from_line(kind), from_line(numbers), from_line(state)};
}

}  // namespace

Error write_error(const std::string& path, int code, std::uint64_t offset, std::uint64_t length) {
  std::string problem =
      with_commas(length) + " bytes could not be written after the first " + with_commas(offset);
  if (code != ENOSPC && code != EDQUOT && code != EFBIG) {
    return Error::system("write", code, problem).in(path).at(offset);
  }
  struct statvfs disk {};
  if (code == ENOSPC && ::statvfs(folder_of(path).c_str(), &disk) == 0) {
    const std::uint64_t free = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
    problem += "; the disk has " + format_size(free) + " free (" + with_commas(free) + " bytes)";
  }
  return Error::system("write", code, problem)
      .in(path)
      .at(offset)
      .hint(code == ENOSPC   ? "free some space, or write to another disk"
            : code == EDQUOT ? "your quota is used up: free some space, or ask for more"
                             : "the limit of file sizes is reached: see `ulimit -f`");
}

OutputFile::OutputFile(const std::string& path, bool resume, bool allow_direct)
    : asked_path_(path), path_(resolved(path)), partial_(path_ + ".partial") {
  if (path.empty() || path.back() == '/') {
    throw Error(ErrorKind::kInvalid, "create", "the name of a file is missing").in(path);
  }
  open_partial(resume, allow_direct);
}

OutputFile::OutputFile(const std::string& path, ReadOnly)
    : asked_path_(path), path_(path), partial_(path + ".partial"), gone_(true) {
  fd_ = Fd(sys::open(partial_.c_str(), O_RDONLY | O_DIRECT));
  direct_ = static_cast<bool>(fd_);
  if (!fd_) fd_ = Fd(sys::open(partial_.c_str(), O_RDONLY));
  if (!fd_) throw Error::system("open", errno).in(partial_);
  read_checkpoint();
}

// Only ENOENT means that there is no checkpoint; other errors are thrown.
void OutputFile::read_checkpoint() {
  if (const auto text = read_text_file(state_path())) {
    checkpoint_ = parse_checkpoint(*text);
  } else if (errno != ENOENT) {
    const int code = errno;
    gone_ = true;  // so that the partial file is not removed
    throw Error::system("open", code, "the checkpoint cannot be read")
        .in(state_path())
        .hint(code == EMFILE ? "more files are open than `ulimit -n` allows: raise it"
                             : "nothing was changed");
  }
}

void OutputFile::open_partial(bool resume, bool allow_direct) {
  mode_t mode = 0666;
  struct stat old {};
  const bool replaces = ::stat(path_.c_str(), &old) == 0;
  const auto open = [&](int extra) {
    int fd;
    do {
      fd = sys::create(partial_.c_str(), O_RDWR | O_NOFOLLOW | extra, mode);
    } while (fd < 0 && errno == EINTR);
    return fd;
  };
  int fd;
  do {  // until the locked file is the one with that name
    fd = allow_direct ? open(O_DIRECT) : -1;
    direct_ = fd >= 0;
    if (fd < 0 && (!allow_direct || errno == EINVAL || errno == EOPNOTSUPP)) fd = open(0);
    if (fd < 0) {
      const int code = errno;
      throw Error::system("create", code)
          .in(partial_)
          .hint(code == ENOENT   ? "the folder must exist"
                : code == EACCES ? "you must be allowed to write to the folder"
                : code == ELOOP  ? "this is a link: remove it, or write to another name"
                                 : "nothing was changed");
    }
    fd_ = Fd(fd);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      gone_ = true;  // it belongs to the other writer: do not remove it
      throw Error(ErrorKind::kInvalid, "create", "another writer is writing this file")
          .in(path_)
          .hint("close it, or wait if it is in another process, or write to another name");
    }
  } while (!still_named(fd, partial_));
  if (replaces) ::fchmod(fd, old.st_mode & 07777);
  if (resume) {
    read_checkpoint();
    struct stat now {};
    if (checkpoint_ && (sys::fstat(fd, &now) != 0 ||
                        static_cast<std::uint64_t>(now.st_size) < checkpoint_->size)) {
      checkpoint_.reset();  // it belongs to another file, which no longer exists
    }
  }
  saved_ = checkpoint_.has_value();
  if (!checkpoint_) remove_replaced(state_path());
  // Bytes after the checkpoint may not be on the disk. Drop them.
  resize(checkpoint_ ? round_up(checkpoint_->size, kAlignment) : 0);
}

OutputFile::~OutputFile() {
  if (!gone_ && !saved_) discard();
}

void OutputFile::discard() noexcept {
  if (gone_) return;
  gone_ = true;
  remove_replaced(state_path());
  sys::unlink(partial_.c_str());
}

void OutputFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  std::uint64_t done = 0;
  int short_writes = 0;
  while (done < bytes.size()) {
    const bool was_direct = direct();
    const ssize_t count =
        sys::pwrite(fd_.get(), bytes.data() + done, bytes.size() - done, offset + done);
    if (count < 0) {
      const int code = errno;
      if (code == EINTR || code == EAGAIN) continue;
      if (code == EINVAL && was_direct) {  // O_DIRECT works for open, but not for writes
        end_direct();
        continue;
      }
      throw write_error(path_, code, offset + done, bytes.size() - done);
    }
    const std::uint64_t whole = round_down(static_cast<std::uint64_t>(count), kAlignment);
    if (whole == 0 && ++short_writes == kShortWrites) {
      throw write_error(path_, EIO, offset + done, bytes.size() - done);
    }
    done += whole;
  }
  if (direct()) return;
  // Write back and drop each write at once, so that few pages are dirty or cached. The kernel
  // reports a disk error only once: here, not in a later fsync.
  while (sys::sync_file_range(fd_.get(), offset, bytes.size(),
                              SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                  SYNC_FILE_RANGE_WAIT_AFTER) != 0) {
    const int code = errno;
    if (code == EINTR) continue;
    if (code == ENOSYS || code == EINVAL || code == ESPIPE) break;  // not supported here
    throw write_error(path_, code, offset, bytes.size());
  }
  sys::fadvise(fd_.get(), offset, bytes.size(), POSIX_FADV_DONTNEED);
}

// First the file, then the flag: a thread that sees the flag cleared relies on the page cache.
void OutputFile::end_direct() {
  ::fcntl(fd_.get(), F_SETFL, ::fcntl(fd_.get(), F_GETFL) & ~O_DIRECT);
  direct_ = false;
}

void OutputFile::read(std::uint64_t offset, std::span<std::byte> bytes) {
  std::uint64_t done = 0;
  while (done < bytes.size()) {
    const bool was_direct = direct();
    const ssize_t count =
        sys::pread(fd_.get(), bytes.data() + done, bytes.size() - done, offset + done);
    if (count < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      if (errno == EINVAL && was_direct) {
        end_direct();
        continue;
      }
      throw Error::system("read back", errno).in(partial_).at(offset + done);
    }
    const auto whole = round_down(static_cast<std::uint64_t>(count), kAlignment);
    if (count == 0 || (whole == 0 && was_direct)) {  // the end
      done += static_cast<std::uint64_t>(count);
      break;
    }
    done += whole == 0 ? static_cast<std::uint64_t>(count) : whole;
  }
  std::memset(bytes.data() + done, 0, bytes.size() - done);
  if (!direct()) sys::fadvise(fd_.get(), offset, bytes.size(), POSIX_FADV_DONTNEED);
}

void OutputFile::allocate(std::uint64_t needed, std::uint64_t wanted) {
  const std::uint64_t have = allocated_.load();
  if (needed <= have || !can_allocate_) return;
  for (std::uint64_t upto = std::max(needed, wanted);;) {
    if (sys::fallocate(fd_.get(), 0, have, upto - have) == 0) {
      allocated_ = upto;
      return;
    }
    const int code = errno;
    if (code == EINTR) continue;
    if (code == EOPNOTSUPP || code == ENOSYS || code == EINVAL) {
      can_allocate_ = false;  // a full disk is then reported by writes
      return;
    }
    if (upto == needed) throw write_error(path_, code, have, needed - have);
    upto = needed;
  }
}

void OutputFile::punch(std::uint64_t offset, std::uint64_t length) {
  sys::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length);
}

void OutputFile::resize(std::uint64_t bytes) {
  while (sys::ftruncate(fd_.get(), bytes) != 0) {
    if (errno != EINTR) throw write_error(path_, errno, bytes, 0);
  }
  allocated_ = std::min(allocated_.load(), bytes);
}

void OutputFile::sync() {
  while (sys::fsync(fd_.get()) != 0) {
    if (errno == EINTR) continue;
    throw Error::system("write", errno, "the disk failed to store all data")
        .in(path_)
        .hint("the file was not completed; check the disk (`dmesg`), then write it again");
  }
}

void OutputFile::save(const Checkpoint& checkpoint) {
  std::string text(kStateMagic);
  text += "\n" + std::to_string(checkpoint.size) + "\n" + one_line(checkpoint.kind) + "\n" +
          one_line(checkpoint.numbers) + "\n" + one_line(checkpoint.state) + "\nend\n";
  replace_file(state_path(), text);
  saved_ = true;
}

void OutputFile::commit() {
  if (sys::rename(partial_.c_str(), path_.c_str()) != 0) {
    const int code = errno;
    throw Error::system("write", code, "the complete file could not be renamed")
        .in(path_)
        .hint("its data is in " + partial_ + " until this writer is destroyed");
  }
  gone_ = true;
  sync_folder_of(path_);
  remove_replaced(state_path());
}

void remove_replaced(const std::string& path) noexcept {
  sys::unlink((path + kFresh).c_str());
  sys::unlink(path.c_str());
}

void replace_file(const std::string& path, const std::string& text) {
  const std::string fresh = path + kFresh;
  int made;
  do {
    made = sys::create(fresh.c_str(), O_WRONLY | O_TRUNC | O_NOFOLLOW, 0666);
  } while (made < 0 && errno == EINTR);
  const Fd fd(made);
  if (!fd) throw Error::system("write", errno).in(fresh);
  std::uint64_t done = 0;
  const auto failed = [&](int code) {
    sys::unlink(fresh.c_str());
    return write_error(path, code, done, text.size() - done);
  };
  while (done < text.size()) {
    const ssize_t count = sys::pwrite(fd.get(), text.data() + done, text.size() - done, done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw failed(count < 0 ? errno : EIO);
    done += static_cast<std::uint64_t>(count);
  }
  while (sys::fsync(fd.get()) != 0) {
    if (errno != EINTR) throw failed(errno);
  }
  if (sys::rename(fresh.c_str(), path.c_str()) != 0) throw failed(errno);
  sync_folder_of(path);
}

}  // namespace evenkeel
