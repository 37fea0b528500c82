#include "base/kept_file.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <string>
#include <utility>

namespace evenkeel {
namespace {

std::atomic<std::size_t> kept_files = 0;

std::size_t most_kept_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 8;
  return std::clamp<std::size_t>(limit.rlim_cur / 8, 8, 1024);
}

}  // namespace

KeptFile::KeptFile(std::shared_ptr<const Fd> fd) : fd_(std::move(fd)) {}
KeptFile::~KeptFile() { --kept_files; }

std::shared_ptr<const KeptFile> KeptFile::keep(std::shared_ptr<const Fd> fd) {
  if (++kept_files > most_kept_files()) {
    --kept_files;
    return nullptr;
  }
  return std::shared_ptr<const KeptFile>(new KeptFile(std::move(fd)));
}

Fd KeptFile::open_again(int flags) const {
  const std::string link = "/proc/self/fd/" + std::to_string(fd_->get());
  return Fd(sys::open(link.c_str(), O_RDONLY | flags));
}

}  // namespace evenkeel
