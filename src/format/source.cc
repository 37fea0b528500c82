#include "format/source.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "base/modified.h"
#include "evenkeel/error.h"

namespace evenkeel {

FileIdentity identify(int fd, const std::string& path) {
  struct stat status;
  if (sys::fstat(fd, &status) != 0) throw Error::system("stat", errno).in(path);
  return {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size),
          modified_ns(status)};
}

std::string Source::read(std::uint64_t offset, std::size_t length) const {
  const std::uint64_t rest = offset < identity.size ? identity.size - offset : 0;
  std::string bytes(std::min<std::uint64_t>(length, rest), '\0');  // asking for more reads twice
  const std::size_t got =
      read_upto(fd.get(), offset, std::as_writable_bytes(std::span(bytes)), path);
  if (got < bytes.size()) {
    throw Error(ErrorKind::kFormat, "open", "the file became shorter while it was opened")
        .in(path)
        .at(offset + got)
        .hint("wait until it is written, then open it again");
  }
  return bytes;
}

Source open_even_empty(const std::string& path) {
  if (path.find('\0') != path.npos) {
    throw Error(ErrorKind::kInvalid, "open", "a path cannot hold a zero byte").in(path.c_str());
  }
  Source source{path, open_readable(path), {}};
  source.identity = identify(source.fd.get(), path);
  // A header is one page: without this the kernel reads ahead into data that nobody asked for.
  // Failing to say so costs nothing else.
  (void)sys::fadvise(source.fd.get(), 0, 0, POSIX_FADV_RANDOM);
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
