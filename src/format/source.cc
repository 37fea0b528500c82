#include "format/source.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <span>
#include <utility>

#include "base/checked.h"
#include "evenkeel/error.h"
#include "remote/opening.h"

namespace evenkeel {
namespace {

// Nanoseconds since 1970. A time after the year 2262 does not fit and wraps around. That is fine:
// times are only compared for equality.
std::int64_t nanoseconds(const timespec& time) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
                                   static_cast<std::uint64_t>(time.tv_nsec));
}

}  // namespace

FileIdentity::FileIdentity(const struct stat& status)
    : device(status.st_dev),
      inode(status.st_ino),
      size(static_cast<std::uint64_t>(status.st_size)),
      mtime_ns(nanoseconds(status.st_mtim)),
      ctime_ns(nanoseconds(status.st_ctim)),
      links(status.st_nlink),
      mode(status.st_mode),
      owner(status.st_uid),
      group(status.st_gid) {}

FileIdentity identify(int fd, const std::string& path) {
  struct stat status;
  if (sys::fstat(fd, &status) != 0) throw Error::system("stat", errno).in(path);
  return FileIdentity(status);
}

std::string Source::read(std::uint64_t offset, std::size_t length) const {
  const std::uint64_t rest = offset < identity.size ? identity.size - offset : 0;
  if (remote) return read_object(*remote, offset, length);
  std::string bytes(std::min<std::uint64_t>(length, rest), '\0');
  const std::size_t got =
      read_upto(fd->get(), offset, std::as_writable_bytes(std::span(bytes)), path);
  if (got < bytes.size()) {
    throw Error(ErrorKind::kFormat, "open", "the file became shorter while it was opened")
        .in(path)
        .at(offset + got)
        .hint("wait until it is written, then open it again");
  }
  return bytes;
}

void Source::drop(std::uint64_t offset, std::uint64_t length) const {
  if (!fd) return;  // an object on a server
  const std::uint64_t page = sys::page_size();
  const std::uint64_t begin = round_down(offset, page);
  (void)sys::fadvise(fd->get(), begin, round_up(offset + length, page) - begin,
                     POSIX_FADV_DONTNEED);
}

Segment Source::segment(std::uint64_t data_offset, std::uint64_t rows) const {
  return {path, identity, data_offset, 0, rows, fd ? KeptFile::keep(fd) : nullptr, remote};
}

Source open_even_empty(const std::string& path) {
  if (path.find('\0') != path.npos) {
    throw Error(ErrorKind::kInvalid, "open", "a path cannot hold a zero byte").in(path.c_str());
  }
  if (is_url(path)) {
    Source source{path, nullptr, {}, open_object(path)};
    source.identity.size = source.remote->size;
    // Not a time, but it changes when the object changes.
    const std::size_t version = std::hash<std::string>()(source.remote->version());
    source.identity.mtime_ns = static_cast<std::int64_t>(version);
    return source;
  }
  Source source{path, std::make_shared<const Fd>(open_readable(path)), {}};
  source.identity = identify(source.fd->get(), path);
  // A header is one page; without this advice the kernel would read ahead into the data. If the
  // call fails, nothing else is affected.
  (void)sys::fadvise(source.fd->get(), 0, 0, POSIX_FADV_RANDOM);
  return source;
}

Source open_source(const std::string& path) {
  Source source = open_even_empty(path);
  if (source.identity.size == 0) {
    throw Error(ErrorKind::kFormat, "open", "the file is empty (0 bytes)")
        .in(path)
        .hint("the download or copy may be incomplete");
  }
  return source;
}

}  // namespace evenkeel
