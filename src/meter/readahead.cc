#include "base/readahead.h"

#include <sys/stat.h>

#include <cerrno>

#include "evenkeel/error.h"
#include "evenkeel/meter.h"

namespace evenkeel {

std::optional<std::uint64_t> readahead_bytes(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) {
    throw Error::system("find the device of", errno).in(path);
  }
  return readahead_of_device(status.st_dev);
}

}  // namespace evenkeel
