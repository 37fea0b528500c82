#include "guard/activity.h"

#include <sys/resource.h>

#include "base/text_file.h"
#include "meter/proc.h"

namespace evenkeel {

std::optional<std::uint64_t> parse_statm_shared(std::string_view statm) {
  for (int skip = 0; skip < 2; ++skip) {
    const std::size_t blank = statm.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    statm.remove_prefix(blank + 1);
  }
  return leading_number(statm);
}

OwnActivity::OwnActivity() : statm_(open_proc(0, "statm")) {}

Activity OwnActivity::read() {
  constexpr std::uint64_t kBlock = 512;
  Activity signs;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  signs.major_faults = static_cast<std::uint64_t>(usage.ru_majflt);
  signs.faults = signs.major_faults + static_cast<std::uint64_t>(usage.ru_minflt);
  // As in /proc/PID/io, but told to every process: that one is closed to those that changed user.
  signs.read_bytes = static_cast<std::uint64_t>(usage.ru_inblock) * kBlock;
  ProcText text;
  signs.mapped = parse_statm_shared(read_again(statm_.get(), text)).value_or(0) * sys::page_size();
  return signs;
}

}  // namespace evenkeel
