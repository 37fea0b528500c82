#include "meter/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/text_file.h"

namespace evenkeel {

std::string proc_path(pid_t pid, std::string_view name) {
  std::string path = "/proc/" + (pid == 0 ? std::string("self") : std::to_string(pid)) + "/";
  return path.append(name);
}

int open_proc(pid_t pid, std::string_view name) {
  return ::open(proc_path(pid, name).c_str(), O_RDONLY | O_CLOEXEC);
}

std::string_view read_again(int fd, ProcText& text) {
  ssize_t got;
  do {
    got = ::pread(fd, text.data(), text.size(), 0);
  } while (got < 0 && errno == EINTR);
  return {text.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

std::vector<pid_t> numbered_entries(const std::string& folder) {
  std::vector<pid_t> numbers;
  const auto close = [](DIR* open) { ::closedir(open); };
  const std::unique_ptr<DIR, decltype(close)> entries(::opendir(folder.c_str()), close);
  if (!entries) return numbers;
  while (const dirent* entry = ::readdir(entries.get())) {
    if (const auto number = leading_number(entry->d_name)) {
      numbers.push_back(static_cast<pid_t>(*number));
    }
  }
  return numbers;
}

}  // namespace evenkeel
