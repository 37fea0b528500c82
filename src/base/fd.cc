#include "base/fd.h"

#include <cerrno>

#include "base/retry_policy.h"
#include "evenkeel/error.h"

namespace evenkeel {

Fd open_readable(const std::string& path, int extra_flags) {
  int fd;
  // O_NONBLOCK: opening a FIFO by mistake must not wait for a writer. Regular files ignore it.
  do {
    fd = sys::open(path.c_str(), O_RDONLY | O_NONBLOCK | extra_flags);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    const int code = errno;
    Error error = Error::system("open", code).in(path);
    if (code == ENOENT) throw std::move(error).hint("check the spelling and the working directory");
    if (code == EACCES) throw std::move(error).hint("the file must be readable by this user");
    if (code == EMFILE) throw std::move(error).hint("raise the limit: ulimit -n");
    throw error;
  }
  Fd file(fd);
  struct stat status;
  if (sys::fstat(fd, &status) != 0) throw Error::system("stat", errno).in(path);
  if (S_ISDIR(status.st_mode)) {
    throw Error::system("open", EISDIR)
        .in(path)
        .hint("name a file, or a pattern such as DIR/*.bin");
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorKind::kInvalid, "open", "is not a regular file")
        .in(path)
        .hint("pipes and devices cannot be read at any offset; copy the data into a file");
  }
  return file;
}

std::size_t read_upto(int fd, std::uint64_t offset, std::span<std::byte> out,
                      const std::string& path) {
  std::size_t done = 0;
  RetryPolicy retry;
  while (done < out.size()) {
    const ssize_t got = sys::pread(fd, out.data() + done, out.size() - done, offset + done);
    if (got == 0) break;
    if (got < 0) {
      const int code = errno;
      if (retry.try_again(code)) continue;
      throw Error::system("read", code).in(path).at(offset + done);
    }
    done += static_cast<std::size_t>(got);
    retry.moved();
  }
  return done;
}

}  // namespace evenkeel
