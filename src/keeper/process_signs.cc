#include "keeper/process_signs.h"

#include "base/sys.h"
#include "base/text_file.h"
#include "meter/counters.h"
#include "meter/proc.h"

namespace evenkeel {

ProcessSigns::One::One(pid_t pid)
    : stat(open_proc(pid, "stat")),
      io(open_proc(pid, "io")),
      statm(open_proc(pid, "statm")),
      last(read()) {}

Signs ProcessSigns::One::read() const {
  ProcText text;
  Signs signs;
  if (const auto counts = parse_stat(read_again(stat.get(), text))) {
    signs.major_faults = counts->major_faults;
    signs.faults = counts->major_faults + counts->minor_faults;
  }
  signs.read_bytes = number_after(read_again(io.get(), text), "read_bytes:").value_or(0);
  const auto shared = parse_statm_shared(read_again(statm.get(), text));
  signs.mapped = shared.value_or(0) * sys::page_size();
  return signs;
}

void ProcessSigns::follow(const std::set<pid_t>& processes) {
  std::lock_guard lock(mutex_);
  std::erase_if(processes_, [&](const auto& one) { return !processes.contains(one.first); });
  for (const pid_t pid : processes) {
    if (!processes_.contains(pid)) processes_.try_emplace(pid, pid);
  }
}

Signs ProcessSigns::read() {
  std::lock_guard lock(mutex_);
  sum_.mapped = 0;
  for (auto& [pid, one] : processes_) {
    const Signs now = one.read();
    sum_.major_faults += growth(one.last.major_faults, now.major_faults);
    sum_.faults += growth(one.last.faults, now.faults);
    sum_.read_bytes += growth(one.last.read_bytes, now.read_bytes);
    sum_.mapped += now.mapped;
    one.last = now;
  }
  return sum_;
}

}  // namespace evenkeel
