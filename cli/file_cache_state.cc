#include "cli/file_cache_state.h"

#include <fmt/core.h>

#include <filesystem>

#include "base/fd.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "evenkeel/budget.h"
#include "evenkeel/bytes.h"
#include "evenkeel/meter.h"

namespace evenkeel::cli {

void make_cold(const std::vector<std::string>& paths) {
  std::uint64_t left = 0;
  bool known = true;
  for (const std::string& path : paths) {
    check_interrupt();
    const auto now = drop_file_cache(path);
    known = known && now;
    left += now.value_or(0);
  }
  if (!known) {
    note("the kernel does not report how much of the file is cached: it may not be cold");
  } else if (left > 0) {
    note(
        fmt::format("{} stay in the page cache (mapped by another process, or a file system in "
                    "memory): this run is not fully cold",
                    format_size(left)));
  }
}

void make_warm(const std::vector<std::string>& paths) {
  std::uint64_t total = 0, done = 0;
  for (const std::string& path : paths) total += std::filesystem::file_size(path);
  const AvailableMemory memory = available_memory();
  if (total > memory.bytes) {
    note(fmt::format("not warmed: the files are {}, available memory is {} ({})",
                     format_size(total), format_size(memory.bytes), memory.source));
    return;
  }
  Progress progress;
  std::vector<std::byte> piece(1 << 20);
  for (const std::string& path : paths) {
    const Fd fd = open_readable(path);
    std::uint64_t at = 0;
    while (const std::size_t got = read_upto(fd.get(), at, piece, path)) {
      check_interrupt();
      at += got;
      done += got;
      if (progress.due()) {
        progress.show(fmt::format("warming {}  {}", bar(double(done) / double(total)), path));
      }
    }
  }
}

}  // namespace evenkeel::cli
