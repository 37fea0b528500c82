#include "guard/activity.h"

#include <sys/resource.h>

#include <algorithm>
#include <memory>

#include "base/per_process.h"
#include "base/text_file.h"
#include "meter/proc.h"

namespace evenkeel {
namespace {

int own_statm() {
  // Never destroyed: guards may outlive static objects.
  static auto& statm =
      *new PerProcess<Fd>([] { return std::make_unique<Fd>(open_proc(0, "statm")); });
  return statm.get().get();
}

}  // namespace

std::uint64_t most_growth(const Activity& before, const Activity& after, std::uint64_t readahead) {
  const std::uint64_t faulted = growth(before.faults, after.faults) * sys::page_size() +
                                growth(before.major_faults, after.major_faults) * readahead;
  return std::max(growth(before, after), faulted);
}

std::optional<std::uint64_t> parse_statm_shared(std::string_view statm) {
  for (int skip = 0; skip < 2; ++skip) {
    const std::size_t blank = statm.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    statm.remove_prefix(blank + 1);
  }
  return leading_number(statm);
}

Activity OwnActivity::read() {
  constexpr std::uint64_t kBlock = 512;
  Activity activity;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  activity.major_faults = static_cast<std::uint64_t>(usage.ru_majflt);
  activity.faults = activity.major_faults + static_cast<std::uint64_t>(usage.ru_minflt);
  // This is read_bytes of /proc/PID/io, a file that a process may not read after changing its user.
  activity.read_bytes = static_cast<std::uint64_t>(usage.ru_inblock) * kBlock;
  ProcText text;
  activity.mapped =
      parse_statm_shared(read_again(own_statm(), text)).value_or(0) * sys::page_size();
  return activity;
}

}  // namespace evenkeel
